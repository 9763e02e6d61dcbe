package validation

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"plinth/internal/fielderrors"
)

// parseSchedule parses a schedule in cron's syntax. The parser panics on some invalid ones.
func parseSchedule(schedule string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("invalid schedule format: %v", r)
		}
	}()
	_, err = cron.ParseStandard(schedule)
	return err
}

// schedule checks when a CronJob runs; zoned says that the old schedule contains a time zone.
func (f *errorList) schedule(schedule string, zoned, timeZone bool, p *fielderrors.Location) {
	if err := parseSchedule(schedule); err != nil {
		f.Invalid(p, schedule, err.Error())
	}
	switch {
	case !strings.Contains(schedule, "TZ"):
	case !zoned:
		f.Invalid(p, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
	case timeZone:
		f.Invalid(p, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")
	}
}

var zonePart = regexp.MustCompile(`^[A-Za-z\.\-_0-9+]{1,14}$`)

func (f *errorList) timeZone(zone string, p *fielderrors.Location) {
	if zone == "" {
		f.Invalid(p, fielderrors.Word(zone), "timeZone must be nil or non-empty string")
		return
	}
	for part := range strings.SplitSeq(zone, "/") {
		if part == "." || part == ".." || !zonePart.MatchString(part) {
			f.Invalid(p, fielderrors.Word(zone), "unknown time zone "+zone)
			return
		}
	}
	if strings.EqualFold(zone, "Local") {
		f.Invalid(p, fielderrors.Word(zone),
			"timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
	}
	if _, err := time.LoadLocation(zone); err != nil {
		f.Invalid(p, fielderrors.Word(zone), err.Error())
	}
}
