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

// elicit asks the user what a server wants to know. Nothing is sent without the user's consent; the
// end of the input cancels.
func (e *environment) elicit(ctx context.Context, request *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	params := request.Params
	_, _ = fmt.Fprintf(e.ErrOut, "The server asks:\n%s\n", indented(text.Block(params.Message, errorBytes)))
	input, values, consent := bufio.NewReader(e.In), map[string]any(nil), "Send this? [y/N] "
	if params.URL != "" {
		consent = fmt.Sprintf("It wants you to open\n%s\nDid you? [y/N] ", indented(text.Line(params.URL, errorBytes)))
	} else {
		schema, err := json.Marshal(params.RequestedSchema)
		if err == nil {
			values, err = e.fillIn(ctx, input, schema)
		}
		if errors.Is(err, io.EOF) {
			return &mcp.ElicitResult{Action: "cancel"}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("answer the question: %w", err)
		}
	}
	_, _ = fmt.Fprint(e.ErrOut, consent)
	result := &mcp.ElicitResult{Action: decision(readLine(ctx, input))}
	if result.Action == "accept" {
		result.Content = values
	}
	return result, nil
}

// decision is what the protocol calls the user's last word. Without one, the user has canceled.
func decision(line string, err error) string {
	switch {
	case err != nil:
		return "cancel"
	case strings.HasPrefix(strings.ToLower(line), "y"):
		return "accept"
	default:
		return "decline"
	}
}

// indented sets lines of a server apart from ours.
func indented(words string) string { return "  " + strings.ReplaceAll(words, "\n", "\n  ") }

// readLine reads a line, or ends with ctx: a read of standard input cannot be interrupted.
func readLine(ctx context.Context, input *bufio.Reader) (string, error) {
	type outcome struct {
		line string
		err  error
	}
	read := make(chan outcome, 1)
	go func() {
		line, err := input.ReadString('\n')
		read <- outcome{strings.TrimRight(line, "\r\n"), err}
	}()
	select {
	case got := <-read:
		return got.line, got.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// fillIn asks for each value that a schema has.
func (e *environment) fillIn(ctx context.Context, input *bufio.Reader, schema json.RawMessage) (map[string]any, error) {
	var form struct {
		Properties map[string]field `json:"properties"`
		Required   []string         `json:"required"`
	}
	var open map[string]any // the same, for one value at a time
	if err := errors.Join(json.Unmarshal(schema, &form), json.Unmarshal(schema, &open)); err != nil {
		return nil, err
	}
	delete(open, "required")
	each, err := json.Marshal(open)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(form.Properties)) {
		property := form.Properties[name]
		property.isRequired = slices.Contains(form.Required, name)
		value, ok, err := e.askFor(ctx, input, name, property, each)
		if err != nil {
			return nil, err
		}
		if ok {
			values[name] = value
		}
	}
	return values, nil
}

// field is a value that a server asks for.
type field struct {
	Description string `json:"description"`
	Enum        []any  `json:"enum"`
	Default     any    `json:"default"`
	isRequired  bool
}

// askFor asks until the user gives a value that fits, or leaves it out.
func (e *environment) askFor(ctx context.Context, input *bufio.Reader, name string, f field, schema json.RawMessage) (value any, ok bool, err error) {
	for {
		_, _ = fmt.Fprint(e.ErrOut, question(name, f.Description, f.Enum, f.Default, f.isRequired))
		line, err := readLine(ctx, input)
		switch {
		case err != nil:
			return nil, false, err
		case line == "" && f.Default != nil:
			return f.Default, true, nil
		case line == "" && !f.isRequired:
			return nil, false, nil
		}
		parsed, err := arguments.Parse(schema, []string{name + "=" + line})
		if err == nil {
			return parsed[name], true, nil
		}
		_, _ = fmt.Fprintln(e.ErrOut, text.Line(err.Error(), errorBytes))
	}
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
