package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// panel is one diagram: figures against the number of objects, which is on a logarithmic scale.
type panel struct {
	title, unit string
	figures     []string // dashed from the second on
	logarithmic bool     // the vertical axis, too; otherwise it begins at 0
}

var panels = []panel{
	{"Restart after kill -9, until ready", "s", []string{"restart"}, true},
	{"Anonymous memory after a restart", "MiB", []string{"anonymous-restarted"}, true},
	{"GET of one object, p50 and p99 (dashed)", "ms", []string{"get-p50", "get-p99"}, false},
	{"Processor time of an update over HTTP", "µs", []string{"update-cpu"}, false},
	{"LIST, a page of 500", "ms", []string{"page-p50"}, false},
	{"LIST of all", "s", []string{"list"}, false},
}

// colors are those of the parts, in the order of the data.
var colors = []string{"#0b6e99", "#c2571a", "#5b8c2a", "#7a4a9e"}

// The layout of the drawing, in pixels.
const (
	columns              = 2
	panelWide, panelHigh = 440, 260
	left, right          = 60, 16
	top, bottom          = 40, 36
	legendHigh           = 34
)

// series is the values of one figure by size.
type series struct {
	part   string
	values map[int]float64
}

// plot draws the data of a CSV file as SVG. If a figure was measured more than once, the last one counts.
func plot(data, drawing string) error {
	file, err := os.Open(data)
	if err != nil {
		return err
	}
	defer file.Close()
	parts, figures, err := readFigures(file)
	if err != nil {
		return fmt.Errorf("%s: %w", data, err)
	}
	rows := (len(panels) + columns - 1) / columns
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+
		"\n"+`<rect width="100%%" height="100%%" fill="white"/>`+"\n", columns*panelWide, rows*panelHigh+legendHigh)
	for i, part := range parts {
		x := left + i*150
		fmt.Fprintf(&b, `<path d="M%d 20h24" stroke="%s" stroke-width="2"/><text x="%d" y="24">%s</text>`+"\n",
			x, colors[i%len(colors)], x+30, html.EscapeString(part))
	}
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", i%columns*panelWide, legendHigh+i/columns*panelHigh)
		if err := p.draw(&b, parts, figures); err != nil {
			return err
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(drawing, []byte(b.String()), 0o644)
}

// readFigures returns the growing parts of the data, in their order there, and the series of each figure, by its name.
func readFigures(r io.Reader) (parts []string, figures map[string][]series, err error) {
	lines, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, nil, err
	}
	figures = map[string][]series{}
	for _, line := range lines[min(1, len(lines)):] { // without the header
		if len(line) != 6 {
			return nil, nil, fmt.Errorf("a line has %d fields, want 6", len(line))
		}
		n, first := strconv.Atoi(line[2])
		value, second := strconv.ParseFloat(line[4], 64)
		if err := errors.Join(first, second); err != nil {
			return nil, nil, err
		}
		part, figure := line[0]+" "+line[1], line[3]
		if line[1] != "leases" && line[1] != "pods" {
			continue
		}
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
		at := slices.IndexFunc(figures[figure], func(s series) bool { return s.part == part })
		if at < 0 {
			at = len(figures[figure])
			figures[figure] = append(figures[figure], series{part, map[int]float64{}})
		}
		figures[figure][at].values[n] = value
	}
	return parts, figures, nil
}

// draw draws a panel.
func (p panel) draw(b *strings.Builder, parts []string, figures map[string][]series) error {
	low, high, least, most := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, figure := range p.figures {
		for _, s := range figures[figure] {
			for n, v := range s.values {
				low, high = min(low, float64(n)), max(high, float64(n))
				least, most = min(least, v), max(most, v)
			}
		}
	}
	if math.IsInf(low, 0) {
		return fmt.Errorf("there are no figures for %q", p.title)
	}
	x := scale{math.Log10(low), max(math.Log10(high), math.Log10(low)+1), left, panelWide - right, true}
	y := scale{0, nice(most), panelHigh - bottom, top, false}
	if p.logarithmic {
		y = scale{math.Floor(math.Log10(least)), math.Ceil(math.Log10(most)), panelHigh - bottom, top, true}
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", left, top-16, html.EscapeString(p.title))
	for _, v := range x.ticks() {
		at := x.at(v)
		fmt.Fprintf(b, `<path d="M%.1f %dV%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			at, top, panelHigh-bottom, at, panelHigh-bottom+16, number(v))
	}
	for _, v := range y.ticks() {
		at := y.at(v)
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, at, panelWide-right, left-6, at+4, number(v))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", left-50, top-16, html.EscapeString(p.unit))
	for i, figure := range p.figures {
		for _, s := range figures[figure] {
			p.line(b, s, x, y, colors[slices.Index(parts, s.part)%len(colors)], i > 0)
		}
	}
	return nil
}

// line draws a series.
func (p panel) line(b *strings.Builder, s series, x, y scale, color string, dashed bool) {
	var sizes []int
	for n := range s.values {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	var points []string
	for _, n := range sizes {
		px, py := x.at(float64(n)), y.at(s.values[n])
		points = append(points, fmt.Sprintf("%.1f,%.1f", px, py))
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s at %d: %.4g</title></circle>`+"\n",
			px, py, color, html.EscapeString(s.part), n, s.values[n])
	}
	dash := ""
	if dashed {
		dash = ` stroke-dasharray="5 4"`
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n",
		strings.Join(points, " "), color, dash)
}

// scale places values between two pixels. low and high are values, or their logarithms.
type scale struct {
	low, high   float64
	from, to    float64
	logarithmic bool
}

func (s scale) at(v float64) float64 {
	if s.logarithmic {
		v = math.Log10(v)
	}
	return s.from + (s.to-s.from)*(v-s.low)/(s.high-s.low)
}

// ticks are the values that are written at the axis: the powers of ten, or five steps.
func (s scale) ticks() []float64 {
	var values []float64
	if s.logarithmic {
		for v := math.Ceil(s.low); v <= s.high; v++ {
			values = append(values, math.Pow(10, v))
		}
		return values
	}
	for i := range 6 {
		values = append(values, s.low+(s.high-s.low)*float64(i)/5)
	}
	return values
}

// nice is the least of 1, 2 and 5 times a power of ten that is not less than v.
func nice(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, factor := range []float64{1, 2, 5} {
		if v <= factor*power {
			return factor * power
		}
	}
	return 10 * power
}

func number(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%g M", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%g k", v/1e3)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
