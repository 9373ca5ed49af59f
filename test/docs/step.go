package docs

import (
	"fmt"
	"strings"
)

// Step is something to type.
type Step struct {
	Line       int // of the page
	Script     string
	Want       string // its output; empty if the page shows none
	Background bool   // it runs until the end of the page
}

// notCommands are the languages of blocks that users do not type into a shell.
var notCommands = map[string]bool{"yaml": true, "json": true, "dockerfile": true, "text": true}

// Steps are the commands of a block, or the reason why it does not run. A block that is no commands has neither.
func (b *Block) Steps() (steps []Step, skipped string, err error) {
	switch b.Language {
	case "sh":
		steps = []Step{{Line: b.Line, Script: b.Text}}
	case "console":
		if steps, err = consoleSteps(b); err != nil {
			return nil, "", err
		}
	default:
		if !notCommands[b.Language] {
			return nil, "", fmt.Errorf("line %d: a block of %q: the test knows sh and console, which run, and yaml, json, dockerfile and text, which do not", b.Line, b.Language)
		}
		if b.Mark != "" || strings.HasPrefix(b.Text, "$ ") {
			return nil, "", fmt.Errorf("line %d: a block of %s does not run: call it sh or console", b.Line, b.Language)
		}
		return nil, "", nil
	}
	return b.marked(steps)
}

// marked does to the commands of a block what the comment above it says.
func (b *Block) marked(steps []Step) ([]Step, string, error) {
	name, argument, _ := strings.Cut(b.Mark, ":")
	argument = strings.TrimSpace(argument)
	switch {
	case b.Mark == "":
		return steps, "", nil
	case name == "skip":
		if len(strings.Fields(argument)) < 3 {
			return nil, "", fmt.Errorf("line %d: skip needs a reason, as in <!-- skip: it needs a browser -->", b.Line)
		}
		return nil, argument, nil
	case name == "run" && argument == "background" && len(steps) == 1:
		steps[0].Background = true
		return steps, "", nil
	default:
		return nil, "", fmt.Errorf("line %d: <!-- %s --> is not known", b.Line, b.Mark)
	}
}

// consoleSteps are the commands of a recorded session, with their output.
func consoleSteps(b *Block) (steps []Step, err error) {
	lines := strings.Split(b.Text, "\n")
	for i, line := range lines {
		command, isCommand := strings.CutPrefix(line, "$ ")
		more, continues := strings.CutPrefix(line, "> ")
		switch {
		case isCommand:
			steps = append(steps, Step{Line: b.Line + i, Script: command})
		case len(steps) == 0:
			return nil, fmt.Errorf("line %d: a console block begins with a command, such as $ kubectl mcp list", b.Line+i)
		case continues && steps[len(steps)-1].Want == "":
			steps[len(steps)-1].Script += "\n" + more
		default:
			steps[len(steps)-1].Want += line + "\n"
		}
	}
	for i := range steps {
		steps[i].Want = strings.TrimSpace(steps[i].Want)
	}
	return steps, nil
}
