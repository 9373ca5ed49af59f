package manifest

import (
	"regexp"
	"strings"
)

// reference is a part of a text that a client replaces: ${input:id}, ${env:NAME}, ${NAME},
// ${NAME:-default}, or ${workspaceFolder} and others that stand for a place on a machine.
var reference = regexp.MustCompile(`\$\{[^{}]*\}`)

// part is a part of a text of a client's configuration.
type part struct {
	text      string // as it is written; of a default, the default
	variable  string // the variable or input to ask for
	isInput   bool
	isDefault bool
	isMachine bool
}

func (p part) isUnknown() bool { return p.variable != "" && !p.isDefault }

// about is what VS Code tells its user about an input.
func (p part) about(inputs map[string]*input) string {
	if !p.isInput {
		return ""
	}
	return inputs[p.variable].about()
}

const defaultTaken = "the default is taken for what your machine may set"

// machine are names that editors replace by places on the machine they run on.
var machine = map[string]bool{
	"/": true, "CLAUDE_PLUGIN_ROOT": true, "CLAUDE_PROJECT_DIR": true, "cwd": true, "execPath": true, "file": true, "fileBasename": true,
	"fileDirname": true, "fileWorkspaceFolder": true, "HOME": true, "pathSeparator": true, "relativeFile": true, "userHome": true,
	"workspaceFolder": true, "workspaceFolderBasename": true, "workspaceRoot": true,
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// split takes a text apart. Inputs may have a default.
func split(value string, inputs map[string]*input) []part {
	var parts []part
	at := 0
	for _, found := range reference.FindAllStringIndex(value, -1) {
		if found[0] > at {
			parts = append(parts, part{text: value[at:found[0]]})
		}
		parts = append(parts, classify(value[found[0]:found[1]], inputs))
		at = found[1]
	}
	if at < len(value) {
		parts = append(parts, part{text: value[at:]})
	}
	return parts
}

func classify(written string, inputs map[string]*input) part {
	inner := written[len("${") : len(written)-len("}")]
	if id, found := strings.CutPrefix(inner, "input:"); found {
		in := inputs[id]
		if in.use(); in != nil && in.hasDefault && !in.isPassword {
			return part{text: in.fallback, variable: id, isInput: true, isDefault: true}
		}
		return part{text: written, variable: id, isInput: true}
	}
	inner = strings.TrimPrefix(inner, "env:")
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	base, _, _ := strings.Cut(name, ":") // as in ${workspaceFolder:name}
	switch {
	case machine[base]:
		return part{text: written, isMachine: true}
	case !variableName.MatchString(name):
		return part{text: written, isMachine: strings.Contains(name, ":")} // ${command:…}, ${config:…}
	case hasFallback:
		return part{text: fallback, variable: name, isDefault: true}
	default:
		return part{text: written, variable: name}
	}
}

// upperSnake makes the name of a variable of that of a flag, header or input.
func upperSnake(name string) string {
	return strings.ToUpper(strings.Join(words.FindAllString(name, -1), "_"))
}

// clientEnv adds a variable of a client's configuration.
func (d *draft) clientEnv(at *node, name, value string, inputs map[string]*input) {
	var plain, template strings.Builder
	isAsked, isDefault, about := false, false, ""
	for _, p := range split(value, inputs) {
		switch {
		case p.isMachine:
			d.dropped(at, p.text+" stands for a place on your machine: write a path that the container has")
			return
		case p.isUnknown():
			isAsked, about = true, about+p.about(inputs)
			template.WriteString(changeMe)
			continue
		case p.isDefault:
			isDefault, about = true, about+p.about(inputs)
		default:
			plain.WriteString(p.text)
		}
		template.WriteString(p.text)
	}
	switch {
	case isAsked && secretValue.MatchString(plain.String()):
		d.secretVariable(at, name, d.stub(template.String()), looksSecret)
	case isAsked:
		d.secretVariable(at, name, template.String(), "only your machine knows the value"+about)
	case isDefault:
		d.changed(at, defaultTaken+about)
		fallthrough
	default:
		d.literalEnv(at, name, template.String())
	}
}
