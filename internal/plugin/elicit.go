package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/term"

	"github.com/slipway-mcp/slipway/internal/plugin/arguments"
	"github.com/slipway-mcp/slipway/internal/text"
)

// isInteractive says whether a person can answer questions.
func (e *environment) isInteractive() bool {
	file, ok := e.In.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// showProgress tells how far a call is.
func (e *environment) showProgress(_ context.Context, progress *mcp.ProgressNotificationClientRequest) {
	params := progress.Params
	done := fmt.Sprintf("%g", params.Progress)
	if params.Total > 0 {
		done += fmt.Sprintf(" of %g", params.Total)
	}
	if params.Message != "" {
		done += ": " + text.Line(params.Message, shownBytes)
	}
	_, _ = fmt.Fprintln(e.ErrOut, done)
}

// elicit asks the user what a server wants to know. The end of the input cancels.
func (e *environment) elicit(_ context.Context, request *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	params := request.Params
	_, _ = fmt.Fprintf(e.ErrOut, "The server asks: %s\n", text.Block(params.Message, errorBytes))
	if params.URL != "" {
		_, _ = fmt.Fprintf(e.ErrOut, "Open %s\n", text.Line(params.URL, errorBytes))
		return &mcp.ElicitResult{Action: "accept"}, nil
	}
	encoded, err := json.Marshal(params.RequestedSchema)
	if err != nil {
		return nil, fmt.Errorf("read the question: %w", err)
	}
	values, err := e.fillIn(encoded)
	if errors.Is(err, io.EOF) {
		return &mcp.ElicitResult{Action: "cancel"}, nil
	}
	if err != nil {
		return nil, err
	}
	return &mcp.ElicitResult{Action: "accept", Content: values}, nil
}

// fillIn asks for each value that a schema has.
func (e *environment) fillIn(schema json.RawMessage) (map[string]any, error) {
	var form struct {
		Properties map[string]struct {
			Title, Description string
			Enum               []any
			Default            any
		} `json:"properties"`
		Required []string `json:"required"`
	}
	if err := json.Unmarshal(schema, &form); err != nil {
		return nil, fmt.Errorf("read the question: %w", err)
	}
	// Only what is asked for is checked, one value after the other.
	var open map[string]any
	if err := json.Unmarshal(schema, &open); err != nil {
		return nil, fmt.Errorf("read the question: %w", err)
	}
	delete(open, "required")
	each, err := json.Marshal(open)
	if err != nil {
		return nil, fmt.Errorf("read the question: %w", err)
	}
	input, values := bufio.NewReader(e.In), map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(form.Properties)) {
		property := form.Properties[name]
		for {
			_, _ = fmt.Fprint(e.ErrOut, question(name, property.Description, property.Enum, property.Default, slices.Contains(form.Required, name)))
			line, err := input.ReadString('\n')
			if err != nil {
				return nil, err
			}
			line = strings.TrimRight(line, "\r\n")
			if line == "" && property.Default != nil {
				values[name] = property.Default
				break
			}
			if line == "" && !slices.Contains(form.Required, name) {
				break
			}
			parsed, err := arguments.Parse(each, []string{name + "=" + line})
			if err == nil {
				values[name] = parsed[name]
				break
			}
			_, _ = fmt.Fprintln(e.ErrOut, text.Line(err.Error(), errorBytes))
		}
	}
	return values, nil
}

// question is the line that asks for a value.
func question(name, description string, choices []any, preset any, required bool) string {
	words := text.Line(name, shownBytes)
	if description != "" {
		words += " (" + text.FirstSentence(description, shownBytes) + ")"
	}
	if len(choices) > 0 {
		words += " " + text.Line(fmt.Sprint(choices...), shownBytes)
	}
	switch {
	case preset != nil:
		words += " [" + text.Line(fmt.Sprint(preset), shownBytes) + "]"
	case !required:
		words += " [none]"
	}
	return words + ": "
}
