package main

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Measures of the picture.
const (
	charWidth  = 8.4 // of the usual fonts at fontSize
	fontSize   = 14
	lineHeight = 20
	margin     = 16
	titleBar   = 36
)

// mostBytes is how large a picture may be: pages load it beside their text.
const mostBytes = 100_000

// colors are those of the terminal, in the order of SGR, for dark and for light pages. Each has a contrast of 4.5 or
// more with the background.
var colors = [...]struct{ dark, light string }{
	{"#8b949e", "#24292f"}, {"#ff7b72", "#b3122a"}, {"#56d364", "#116329"}, {"#e3b341", "#7a4b00"},
	{"#79c0ff", "#0550ae"}, {"#d2a8ff", "#6639ba"}, {"#76e3ea", "#1b5e6f"}, {"#e6edf3", "#24292f"},
	{"#8b949e", "#57606a"}, {"#ffa198", "#a40e26"}, {"#7ee787", "#116329"}, {"#f2cc60", "#633c01"},
	{"#a5d6ff", "#0550ae"}, {"#e2c5ff", "#512a97"}, {"#b3f0ff", "#1b5e6f"}, {"#ffffff", "#24292f"},
}

// theme is the style sheet. What is not animated shows the last frame, so that nothing but the animation
// has to be left out for readers who prefer less motion.
func theme(used map[int]bool) string {
	var dark, light, classes strings.Builder
	for i, color := range colors {
		if used[i+1] {
			fmt.Fprintf(&dark, "--f%d:%s;", i+1, color.dark)
			fmt.Fprintf(&light, "--f%d:%s;", i+1, color.light)
			fmt.Fprintf(&classes, ".f%d{fill:%s;fill:var(--f%d)}\n", i+1, color.dark, i+1)
		}
	}
	return `svg{--bg:#0d1117;--bar:#161b22;--edge:#30363d;--fg:#e6edf3;--dim:#8b949e;` + dark.String() + `}
@media (prefers-color-scheme:light){svg{--bg:#f6f8fa;--bar:#eaeef2;--edge:#d0d7de;--fg:#1f2328;--dim:#57606a;` + light.String() + `}}
.w{fill:#0d1117;fill:var(--bg)}
.t{fill:#161b22;fill:var(--bar)}
.e{fill:none;stroke:#30363d;stroke:var(--edge)}
.o{fill:#30363d;fill:var(--edge)}
text{font:` + strconv.Itoa(fontSize) + `px ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono","DejaVu Sans Mono",monospace;fill:#e6edf3;fill:var(--fg);white-space:pre}
.h{font:12px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;text-anchor:middle;fill:#8b949e;fill:var(--dim)}
.p{fill:#8b949e;fill:var(--dim);user-select:none}
.d{fill:#8b949e;fill:var(--dim)}
.b{font-weight:600}
.i{font-style:italic}
.u{text-decoration:underline}
` + classes.String() + `.g,.c{visibility:hidden}
.k{fill:#8b949e;fill:var(--dim)}
.c{transform-box:fill-box}
@keyframes in{from,to{visibility:hidden}}
@keyframes on{from,to{visibility:visible}}
@keyframes ty{from{visibility:visible;transform:none}to{visibility:visible;transform:translateX(100%)}}
.r{animation:in .01s linear backwards}
.g{animation:on 1s linear}
.c{animation:ty 1s linear}
@media (prefers-reduced-motion:reduce){*{animation:none!important}}
`
}

// draw writes a picture of a recording. The same recording always gives the same picture.
func draw(s *script, recording *recording) ([]byte, error) {
	width := float64(s.columns)*charWidth + 2*margin
	height := titleBar + recording.rows*lineHeight + 2*margin
	used := map[int]bool{}
	var rows strings.Builder
	lines := slices.Clone(recording.lines)
	slices.SortStableFunc(lines, func(a, b line) int { return a.number - b.number })
	for i := range lines {
		drawLine(&rows, &lines[i], used)
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%d" viewBox="0 0 %s %d" role="img" aria-labelledby="title desc">`+"\n", number(width), height, number(width), height)
	fmt.Fprintf(&out, "<title id=\"title\">%s</title>\n", escape(s.title))
	fmt.Fprintf(&out, "<desc id=\"desc\">%s</desc>\n<style>\n%s</style>\n", escape(description(s)), theme(used))
	fmt.Fprintf(&out, `<rect class="w" width="%s" height="%d" rx="8"/>`+"\n", number(width), height)
	fmt.Fprintf(&out, `<path class="t" d="M0 8a8 8 0 0 1 8-8H%sa8 8 0 0 1 8 8V%dH0z"/>`+"\n", number(width-8), titleBar)
	fmt.Fprintf(&out, `<rect class="e" x=".5" y=".5" width="%s" height="%d" rx="7.5"/>`+"\n", number(width-1), height-1)
	fmt.Fprintf(&out, `<circle class="o" cx="20" cy="18" r="6"/><circle class="o" cx="40" cy="18" r="6"/><circle class="o" cx="60" cy="18" r="6"/>`+"\n")
	fmt.Fprintf(&out, `<text class="h" x="%s" y="22">%s</text>`+"\n<g xml:space=\"preserve\">\n%s</g>\n</svg>\n", number(width/2), escape(s.title), rows.String())
	if size := out.Len(); size > mostBytes {
		return nil, fmt.Errorf("draw: the picture has %d bytes, and may have %d: fold the output of a command", size, mostBytes)
	}
	return []byte(out.String()), nil
}

// description is for readers who do not see the picture.
func description(s *script) string {
	return s.desc + " Commands: " + strings.Join(s.commands(), "; ") + "."
}

func drawLine(out *strings.Builder, l *line, used map[int]bool) {
	for len(l.cells) > 0 && l.cells[len(l.cells)-1].char == ' ' { // at the end of a line
		l.cells = l.cells[:len(l.cells)-1]
	}
	if len(l.cells) == 0 {
		return
	}
	top := titleBar + margin + l.number*lineHeight
	class, timing := "r", "animation-delay:"+seconds(l.from)
	if l.until > 0 {
		class, timing = "g", timing+";animation-duration:"+seconds(l.until-l.from)
	}
	fmt.Fprintf(out, `<text class="%s" x="%d" y="%d" textLength="%s" lengthAdjust="spacingAndGlyphs" style="%s">`, class, margin, top+15, number(float64(len(l.cells))*charWidth), timing)
	for from := 0; from < len(l.cells); {
		to := from + 1
		for to < len(l.cells) && to != l.prompt && l.cells[to].style == l.cells[from].style {
			to++
		}
		drawSpan(out, l.cells[from:to], to <= l.prompt, used)
		from = to
	}
	out.WriteString("</text>\n")
	if l.typing > 0 {
		drawCover(out, l, top)
	}
}

// drawSpan writes characters that look the same.
func drawSpan(out *strings.Builder, cells []cell, isPrompt bool, used map[int]bool) {
	classes := classesOf(cells[0].style, used)
	if isPrompt {
		classes = []string{"p"}
	}
	text := escape(chars(cells))
	if len(classes) == 0 {
		out.WriteString(text)
		return
	}
	fmt.Fprintf(out, `<tspan class="%s">%s</tspan>`, strings.Join(classes, " "), text)
}

func classesOf(look style, used map[int]bool) (classes []string) {
	if look.color > 0 {
		used[look.color] = true
		classes = append(classes, "f"+strconv.Itoa(look.color))
	}
	for _, has := range []struct {
		it    bool
		class string
	}{{look.dim, "d"}, {look.bold, "b"}, {look.italic, "i"}, {look.line, "u"}} {
		if has.it {
			classes = append(classes, has.class)
		}
	}
	return classes
}

// drawCover hides what is not typed yet. Before that, nothing of the line shows, and no cursor. The cover moves to the right, a character at a time, with the cursor at
// its left edge.
func drawCover(out *strings.Builder, l *line, top int) {
	typed := len(l.cells) - l.prompt
	x, width := margin+float64(l.prompt)*charWidth, float64(typed)*charWidth
	fmt.Fprintf(out, `<g class="c" style="animation-delay:%s;animation-duration:%s;animation-timing-function:steps(%d)"><rect class="w" x="%s" y="%d" width="%s" height="%d"/><rect class="k" x="%s" y="%d" width="%s" height="%d"/></g>`+"\n",
		seconds(l.from), seconds(l.typing), typed, number(x), top, number(width+1), lineHeight, number(x), top+2, number(charWidth), lineHeight-3)
}

func number(value float64) string {
	return strconv.FormatFloat(float64(int(value*10+.5))/10, 'f', -1, 64)
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d.Round(10*time.Millisecond).Milliseconds())/1000, 'f', -1, 64) + "s"
}

func escape(text string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(text)) // a Builder does not fail
	return out.String()
}
