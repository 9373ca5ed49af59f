package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// shownText reads what a picture shows at its end, line by line, with its title and its description.
func shownText(picture []byte) (shown []string, err error) {
	decoder := xml.NewDecoder(bytes.NewReader(picture))
	var text *strings.Builder // of the element whose text is kept
	depth := 0                // of elements in it
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return shown, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read picture: %w", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if text != nil {
				depth++
			} else if isShown(token) {
				text = &strings.Builder{}
			}
		case xml.CharData:
			if text != nil {
				text.Write(token)
			}
		case xml.EndElement:
			if text != nil && depth == 0 {
				shown = append(shown, text.String())
				text = nil
			}
			depth = max(0, depth-1)
		}
	}
}

func isShown(element xml.StartElement) bool {
	switch element.Name.Local {
	case "title", "desc":
		return true
	case "text":
		for _, attribute := range element.Attr {
			if attribute.Name.Local == "class" {
				return attribute.Value == "r"
			}
		}
	}
	return false
}

// changing is what differs between two runs of the same commands. Scripts redact what they know of; this is for
// the rest, so that a check fails for what a reader would call another output only.
var changing = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`-[0-9a-f]{8,10}-[0-9a-z]{5}\b`), "-POD"},
	{regexp.MustCompile(`\b(?:sha256:)?[0-9a-f]{12,64}(?:-dirty(?:-[0-9a-f]{8})?)?\b`), "HASH"},
	{regexp.MustCompile(`\b(?:\d+(?:\.\d+)?(?:ms|[smhdy]))+\b`), "TIME"},
	{regexp.MustCompile(`\bv\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?\b`), "VERSION"},
	{regexp.MustCompile(`\s+`), " "}, // columns are as wide as what is in them
}

// normal are lines without what changes from run to run.
func normal(shown []string) []string {
	lines := make([]string, 0, len(shown))
	for _, line := range shown {
		for _, what := range changing {
			line = what.pattern.ReplaceAllString(line, what.with)
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}
