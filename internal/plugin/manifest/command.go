package manifest

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// Images that have npx and uvx. They are tags that move with patch releases, as for anything that is
// meant to be replaced by an image of one's own.
const (
	npxImage = "node:22-slim"
	uvxImage = "astral/uv:python3.13-trixie-slim"
)

// clientCommand is the command of a client's server.
type clientCommand struct {
	*draft
	inputs map[string]*input
	asked  map[string]string // by what the arguments refer to, the variable that has it
	at     *node             // of the command
	words  []word
}

// npx keeps the command. Without --yes, npx would ask whether it may install the package.
func (c clientCommand) npx() bool {
	command := []string{"npx"}
	if !slices.ContainsFunc(c.words, func(w word) bool { return w.text == "-y" || w.text == "--yes" }) {
		command = append(command, "-y")
	}
	c.runPackage(npxImage, command, []string{"-p", "--package"})
	return true
}

func (c clientCommand) uvx(command ...string) bool {
	c.runPackage(uvxImage, command, []string{"--from"})
	return true
}

// runPackage makes a server of a program that installs a package and starts it.
func (c clientCommand) runPackage(image string, command, packageFlags []string) {
	c.accept(image)
	c.env()
	args := c.args(c.words)
	name, index := packageOf(c.words, packageFlags)
	if index >= 0 {
		command, args = slices.Concat(command, args[:index+1]), args[index+1:]
	}
	c.spec.Command = command
	c.spec.Args = slices.Clip(args)
	c.installs(c.at, name)
}

// installs is what servers that install a package when they start have in common.
func (d *draft) installs(at *node, name string) {
	givePatience(d.spec)
	d.changed(at, installsInPods)
	if secretValue.MatchString(name) { // a URL with a password
		name = "of this URL"
	}
	if name != "" && !pinned.MatchString(name) {
		d.changed(at, "package "+name+" has no exact version, so every start can run another: write one, such as NAME@1.2.3")
	}
}

const installsInPods = "each new pod installs the package from its public index: for production, build an image that holds it"

// givePatience gives a server time to install a package when it starts. One process of a pod installs at a time, because
// all of them write the same cache.
func givePatience(spec *mcpv1alpha1.MCPServerSpec) {
	const cold = 5 * time.Minute
	spec.Session.StartTimeout = &metav1.Duration{Duration: cold}
	one := int32(1)
	spec.Adapter.Limits = &mcpv1alpha1.AdapterLimits{ConcurrentStarts: &one}
}

// pinned matches a package with an exact version, of npm or PyPI.
var pinned = regexp.MustCompile(`.(@|==)v?[0-9]+(\.[0-9]+)+([-+.a-z0-9]*)?$`)

// packageOf is the package that npx or uvx installs: the value of a flag, or the first word that is no
// flag. The index is that of this word if it belongs to the command, as it does unless flags with values stand
// before it.
func packageOf(words []word, flags []string) (name string, index int) {
	for i, w := range words {
		flag, value, hasValue := strings.Cut(w.text, "=")
		switch {
		case slices.Contains(flags, flag) && hasValue:
			return value, -1
		case slices.Contains(flags, w.text) && i+1 < len(words):
			return words[i+1].text, -1
		case strings.HasPrefix(w.text, "-"):
			continue
		case i == 0 || i == 1 && (words[0].text == "-y" || words[0].text == "--yes"):
			return w.text, i
		default:
			return w.text, -1
		}
	}
	return "", -1
}

// args are the arguments of a client's server, without secrets and variables of the machine.
func (c clientCommand) args(words []word) []string {
	var args []string
	for i, w := range words {
		previous := ""
		if i > 0 {
			previous = words[i-1].text
		}
		args = append(args, c.arg(w, previous, i))
	}
	return args
}

// local matches paths that only one machine has.
var local = regexp.MustCompile(`^(/Users/|/home/|/Volumes/|~|\.\.?/|[A-Za-z]:[\\/])`)

func (c clientCommand) arg(w word, previous string, index int) string {
	if name, prefix, secret := secretArg(previous, w.text); secret != "" && !reference.MatchString(w.text) {
		return literal(prefix) + c.secretWord(w.at, argName(name, index), c.stub(secret), looksSecret)
	}
	var made strings.Builder
	for _, p := range split(w.text, c.inputs) {
		switch {
		case p.isMachine:
			c.dropped(w.at, p.text+" stands for a place on your machine: the argument stays as it is, write a path that the container has")
			made.WriteString(literal(p.text))
		case p.isUnknown():
			made.WriteString(c.askFor(w.at, p, index))
		default:
			if p.isDefault {
				c.changed(w.at, defaultTaken+p.about(c.inputs))
			}
			made.WriteString(literal(p.text))
		}
	}
	if local.MatchString(w.text) {
		c.changed(w.at, "this looks like a path of your machine: mount a volume with the files, and write its path")
	}
	return made.String()
}

// askFor is the variable for what only the machine of the client knows.
func (c clientCommand) askFor(at *node, p part, index int) string {
	if c.asked[p.text] == "" {
		c.asked[p.text] = c.secretWord(at, argName(p.variable, index), changeMe, "only your machine knows "+p.text+p.about(c.inputs))
	}
	return c.asked[p.text]
}

// argList reads the arguments of a manifest. In those of a pod, $(NAME) stands for a variable.
func (d *draft) argList(n *node, isLiteral bool) []string {
	escape := func(text string) string { return text }
	if isLiteral {
		escape = literal
	}
	var args []string
	previous := ""
	for index, w := range d.argWords(n) {
		name, prefix, secret := secretArg(previous, w.text)
		previous = w.text
		if secret == "" || !isLiteral && strings.Contains(w.text, "$(") {
			args = append(args, escape(w.text))
			continue
		}
		args = append(args, escape(prefix)+d.secretWord(w.at, argName(name, index), d.stub(secret), looksSecret))
	}
	return args
}

const looksSecret = "the value looks like a secret"

// secretWord adds a variable with a value of the Secret, and returns what stands for it in an argument.
// Arguments can name variables, but no Secrets.
func (d *draft) secretWord(at *node, name, value, why string) string {
	made := name
	for number := 2; d.hasEnv(made); number++ {
		made = name + "_" + strconv.Itoa(number)
	}
	d.secretVariable(at, made, value, why)
	return "$(" + made + ")"
}

// argName is the name of the variable for an argument. The prefix keeps it apart from what the server reads.
func argName(name string, index int) string {
	if name = upperSnake(name); name == "" {
		name = strconv.Itoa(index)
	}
	const most = 200
	return "ARG_" + name[:min(len(name), most)]
}

var (
	flagWithValue = regexp.MustCompile(`^(-{0,2}([A-Za-z][A-Za-z0-9_.-]*)=)(.+)$`)
	header        = regexp.MustCompile(`^(([A-Za-z][A-Za-z0-9-]*):\s*)([^/\s].*)$`)
)

// secretArg finds a secret in an argument: what names it, what stands before it, and the secret.
func secretArg(previous, text string) (name, prefix, secret string) {
	for _, form := range []*regexp.Regexp{flagWithValue, header} {
		if found := form.FindStringSubmatch(text); found != nil && isSecret(found[2], found[3]) {
			return found[2], found[1], found[3]
		}
	}
	flag := strings.TrimLeft(previous, "-")
	isValue := strings.HasPrefix(previous, "-") && !strings.Contains(previous, "=") && !strings.HasPrefix(text, "-")
	switch {
	case isValue && isSecretName(flag, text):
		return flag, "", text
	case secretValue.MatchString(text):
		return "", "", text
	default:
		return "", "", ""
	}
}
