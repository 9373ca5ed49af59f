package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/slipway-mcp/slipway/internal/plugin/fleet"
	"github.com/slipway-mcp/slipway/internal/text"
)

// The formats of -o. No format is a table.
const (
	outputTable = ""
	outputWide  = "wide"
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputName  = "name"
)

// printObjects prints objects of Kubernetes in the format that the user asked for. It prints nothing
// if that is a table.
func (e *environment) printObjects(objects runtime.Object) (printed bool, err error) {
	var printer printers.ResourcePrinter
	switch e.output {
	case outputTable, outputWide:
		return false, nil
	case outputJSON:
		printer = &printers.JSONPrinter{}
	case outputYAML:
		printer = &printers.YAMLPrinter{}
	case outputName:
		printer = &printers.NamePrinter{}
	default:
		return false, e.unknownOutput()
	}
	printer, err = printers.NewTypeSetter(fleet.Scheme()).WrapToPrinter(printer, nil)
	if err != nil {
		return false, err
	}
	var out bytes.Buffer
	if e.output == outputName && meta.IsListType(objects) {
		err = meta.EachListItem(objects, func(item runtime.Object) error { return printer.PrintObj(item, &out) })
	} else {
		err = printer.PrintObj(objects, &out)
	}
	if err != nil {
		return false, fmt.Errorf("print as %s: %w", e.output, err)
	}
	return true, e.write(out.String())
}

// write writes text that programs read. What a server wrote into it cannot steer a terminal: JSON has an
// escape for every character; of YAML a terminal, and nothing else, gets replacements.
func (e *environment) write(out string) error {
	switch {
	case e.output == outputJSON:
		out = escape(out)
	case e.Screen.IsTerminal:
		out = harmless(out)
	}
	_, err := io.WriteString(e.Out, out)
	return err
}

// harmless is a text without characters that do anything but show. A character may become three bytes.
func harmless(words string) string { return text.Block(words, 3*len(words)) }

// escape escapes the characters of JSON that do not show, but for line breaks and indents, which are
// not in strings.
func escape(encoded string) string {
	var out strings.Builder
	for _, r := range encoded {
		if r < utf8.RuneSelf && r != 0x7f || unicode.IsPrint(r) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, "\\u%04x", unit)
		}
	}
	return out.String()
}

// printValue prints a value that is no object of Kubernetes, and a line for each name. It prints
// nothing if the user asked for a table.
func (e *environment) printValue(value any, names []string) (printed bool, err error) {
	switch e.output {
	case outputTable, outputWide:
		return false, nil
	case outputName:
		for _, name := range names {
			if _, err := fmt.Fprintln(e.Out, name); err != nil {
				return false, err
			}
		}
		return true, nil
	case outputJSON, outputYAML:
		encoded, err := json.MarshalIndent(value, "", "  ")
		if err == nil && e.output == outputYAML {
			encoded, err = yaml.JSONToYAML(encoded)
		} else if err == nil {
			encoded = append(encoded, '\n')
		}
		if err != nil {
			return false, fmt.Errorf("print as %s: %w", e.output, err)
		}
		return true, e.write(string(encoded))
	default:
		return false, e.unknownOutput()
	}
}

// checkOutput refuses a format that a command does not have, before it does anything.
func (e *environment) checkOutput(formats ...string) error {
	if e.output == outputTable || slices.Contains(formats, e.output) {
		return nil
	}
	return fail(exitUnexpected, "Use -o "+strings.Join(formats, " or ")+".", "unknown output format %q", e.output)
}

func (e *environment) unknownOutput() error {
	return fail(exitUnexpected, "Use -o json, yaml, name or wide.", "unknown output format %q", e.output)
}
