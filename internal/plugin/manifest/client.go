package manifest

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// input is a value that VS Code asks its user for.
type input struct {
	node        *node
	description string
	fallback    string
	hasDefault  bool
	isPassword  bool
}

// use ticks off what an input says. The description goes into a remark.
func (in *input) use() {
	if in == nil {
		return
	}
	for _, key := range []string{"id", "type", "description", "default", "password"} {
		in.node.get(key).tick()
	}
}

func (in *input) about() string {
	if in == nil || in.description == "" {
		return ""
	}
	return " (" + in.description + ")"
}

// inputs reads the inputs without ticking them off: those that no server uses are named.
func (i *importer) inputs(n *node) map[string]*input {
	inputs := map[string]*input{}
	for _, item := range i.list(n) {
		if !i.is(item, kindObject) {
			continue
		}
		in := &input{node: item}
		id := i.peek(item.get("id"))
		in.description = i.peek(item.get("description"))
		if fallback := item.get("default"); fallback != nil {
			in.fallback, in.hasDefault = i.peek(fallback), true
		}
		if password := item.get("password"); password != nil {
			in.isPassword = i.bool(password)
			password.used = false
		}
		if id != "" && inputs[id] == nil {
			inputs[id] = in
		}
	}
	return inputs
}

// peek is scalar without the tick.
func (i *importer) peek(n *node) string {
	value := i.scalar(n)
	if n != nil {
		n.used = false
	}
	return value
}

// client imports the configuration of an MCP client.
func (i *importer) client(root, servers, inputs *node) {
	known := i.inputs(inputs)
	for _, name := range i.fields(servers) {
		server := servers.get(name)
		if server == nil {
			i.drop(name, "", "it is null")
			continue
		}
		if !i.is(server, kindObject) {
			continue
		}
		d := i.newDraft(name, server)
		if d.clientServer(known) {
			i.leftovers(name, server, clientReasons)
			d.finish()
		}
		server.tick()
	}
	i.leftovers("", root, map[string]string{"inputs": notNeeded, "mcp.inputs": notNeeded})
}

const notNeeded = "no server that is carried over needs it"

var clientReasons = map[string]string{
	"alwaysAllow":    "clients decide which calls they confirm",
	"autoApprove":    "clients decide which calls they confirm",
	"cwd":            "the directory is one of your machine: set spec.workingDir if the server needs one",
	"dev":            "it is about the development of the server",
	"env":            "docker run passes only variables on that it names with -e",
	"envFile":        "the file is on your machine: make a Secret of it (kubectl create secret generic NAME --from-env-file=FILE), and name it in spec.envFrom",
	"sandbox":        "a pod is a sandbox of its own: restrict its network with a NetworkPolicy",
	"sandboxEnabled": "a pod is a sandbox of its own",
	"timeout":        "clients decide how long they wait; spec.session.callTimeout ends calls that take too long",
}

// clientServer reads one server. It is false if the server cannot be carried over.
func (d *draft) clientServer(inputs map[string]*input) bool {
	n := d.root
	url, transport := n.get("url"), n.get("type")
	if kind := d.text(transport); url != nil || kind != "" && kind != "stdio" {
		return d.refuse(firstOf(url, transport), "servers behind a URL cannot be carried over yet: connect clients to it directly")
	}
	at := n.get("command")
	command := d.text(at)
	if command == "" {
		return d.refuse(n, "it has neither a command nor a url")
	}
	c := clientCommand{draft: d, inputs: inputs, asked: map[string]string{}, at: at, words: d.argWords(n.get("args"))}
	program := programName(command)
	// On Windows, npx is a script that only a shell can start.
	if program == "cmd" && len(c.words) > 1 && strings.EqualFold(c.words[0].text, "/c") {
		program, c.words = programName(c.words[1].text), c.words[2:]
	}
	return c.run(program)
}

// run makes a server of a program that a container can have.
func (c clientCommand) run(program string) bool {
	switch program {
	case "npx":
		return c.npx()
	case "uvx":
		return c.uvx("uvx")
	case "uv":
		if len(c.words) > 2 && c.words[0].text == "tool" && c.words[1].text == "run" {
			c.words = c.words[2:]
			return c.uvx("uv", "tool", "run")
		}
	case "docker", "podman", "nerdctl":
		return c.docker()
	}
	return c.refuse(c.at, "the program "+program+" exists only on your machine: build an image with it, and write an MCPServer with that image")
}

// accept begins a server of which nothing can prevent that it is carried over.
func (c clientCommand) accept(image string) {
	c.setName(c.root, c.options.Namespace, c.title)
	c.spec.Image = image
	c.spec.Transport.Type = mcpv1alpha1.TransportStdio
	c.spec.Suspend = c.bool(c.root.get("disabled"))
}

// refuse names a server that is not carried over, by the field that is the reason.
func (d *draft) refuse(at *node, why string) bool {
	d.dropped(at, "the server is not carried over: "+why)
	d.root.tick()
	return false
}

// programName is the last part of the path of a program, on any system.
func programName(command string) string {
	name := path.Base(strings.ReplaceAll(command, `\`, "/"))
	for _, ending := range []string{".exe", ".cmd", ".bat"} {
		name = strings.TrimSuffix(strings.ToLower(name), ending)
	}
	return name
}

// word is an argument and where it stands.
type word struct {
	at   *node
	text string
}

func (d *draft) argWords(n *node) []word {
	var found []word
	for _, item := range d.list(n) {
		found = append(found, word{item, d.scalar(item)})
	}
	return found
}

// literalEnv adds a variable with a value that a client takes as it is.
func (d *draft) literalEnv(at *node, name, value string) {
	if isSecret(name, value) {
		d.secretEnv(at, name, value)
		return
	}
	d.addEnv(at, corev1.EnvVar{Name: name, Value: literal(value)})
}

// env adds all variables of a client's server.
func (c clientCommand) env() {
	env := c.root.get("env")
	for _, name := range c.fields(env) {
		if field := env.get(name); field != nil {
			c.clientEnv(field, name, c.scalar(field), c.inputs)
		} else {
			c.dropped(env.fields[name], "it is null")
		}
	}
}
