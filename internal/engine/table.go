package engine

import (
	"strconv"
	"time"
)

// Column is one column of a Table: metav1.TableColumnDefinition. Type and Format are those of OpenAPI, by which clients
// sort and align; kubectl shows a column whose Priority is above 0 only with -o wide.
type Column struct {
	Name, Type, Format, Description string
	Priority                        int32 // above 0: only in wide output
}

// Age is a cell with the time that has passed since an event, between two texts: "3 (5m ago)". It is the only kind of
// cell that depends on the time of the request, so all other cells of an object can be kept.
type Age struct {
	Before string
	Since  time.Time
	After  string
	// Due says that the event may still be expected: the time until then is shown as "in 5m", and "5m ago" after it.
	Due bool
}

// Text is the cell at a time.
func (a Age) Text(now time.Time) string {
	return a.Before + string(AppendAge(nil, a.Since, a.Due, now)) + a.After
}

// AppendAge writes what an Age has between its two texts.
func AppendAge(dst []byte, since time.Time, due bool, now time.Time) []byte {
	switch {
	case !due:
		return AppendDuration(dst, now.Sub(since))
	case since.After(now):
		return AppendDuration(append(dst, "in "...), since.Sub(now))
	}
	return append(AppendDuration(dst, now.Sub(since)), " ago"...)
}

const (
	minute = int64(time.Minute / time.Second)
	hour   = 60 * minute
	day    = 24 * hour
	year   = 365 * day
)

// AppendDuration writes a duration as Kubernetes shows ages: in at most two units, the longer the duration the fewer.
// Clocks differ, so a time less than two seconds in the future counts as now; a later one is "<invalid>".
func AppendDuration(dst []byte, d time.Duration) []byte {
	seconds := int64(d / time.Second)
	switch {
	case seconds < -1:
		return append(dst, "<invalid>"...)
	case seconds < 0:
		return append(dst, "0s"...)
	case seconds < 2*minute:
		return appendUnits(dst, seconds, 1, 's', 0, 0)
	case seconds < 10*minute:
		return appendUnits(dst, seconds, minute, 'm', 1, 's')
	case seconds < 3*hour:
		return appendUnits(dst, seconds, minute, 'm', 0, 0)
	case seconds < 8*hour:
		return appendUnits(dst, seconds, hour, 'h', minute, 'm')
	case seconds < 2*day:
		return appendUnits(dst, seconds, hour, 'h', 0, 0)
	case seconds < 8*day:
		return appendUnits(dst, seconds, day, 'd', hour, 'h')
	case seconds < 2*year:
		return appendUnits(dst, seconds, day, 'd', 0, 0)
	case seconds < 8*year:
		return appendUnits(dst, seconds, year, 'y', day, 'd')
	}
	return appendUnits(dst, seconds, year, 'y', 0, 0)
}

// appendUnits writes whole units and, if smaller is not 0, the rest in the smaller unit, unless it rounds down to 0.
func appendUnits(dst []byte, seconds, unit int64, name byte, smaller int64, smallName byte) []byte {
	dst = append(strconv.AppendInt(dst, seconds/unit, 10), name)
	if smaller == 0 || seconds%unit < smaller {
		return dst
	}
	return append(strconv.AppendInt(dst, seconds%unit/smaller, 10), smallName)
}
