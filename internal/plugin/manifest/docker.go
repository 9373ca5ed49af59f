package manifest

import (
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// docker makes a server of docker run: the image runs in the cluster as it ran on the machine.
func (c clientCommand) docker() bool {
	rest := c.words
	if len(rest) > 0 && rest[0].text == "container" {
		rest = rest[1:]
	}
	if len(rest) == 0 || rest[0].text != "run" {
		return c.refuse(c.at, "only docker run can be carried over")
	}
	var flags []dockerFlag
	for rest = rest[1:]; len(rest) > 0 && strings.HasPrefix(rest[0].text, "-"); {
		var next []dockerFlag
		if next, rest = nextFlags(rest); next == nil {
			break
		}
		flags = append(flags, next...)
	}
	if len(rest) == 0 {
		return c.refuse(c.at, "its docker run names no image")
	}
	if !isImage(rest[0].text) {
		return c.refuse(rest[0].at, "this is no image that can be pulled: write the image out")
	}
	c.accept(rest[0].text)
	for _, flag := range flags {
		c.dockerFlag(flag)
	}
	c.spec.Args = c.args(rest[1:])
	return true
}

// dockerFlag is a flag of docker run with its long name.
type dockerFlag struct {
	at          *node
	name, value string
}

var shortFlags = map[byte]string{
	'P': "publish-all", 'a': "attach", 'c': "cpu-shares", 'd': "detach", 'e': "env", 'h': "hostname", 'i': "interactive", 'l': "label",
	'm': "memory", 'p': "publish", 'q': "quiet", 't': "tty", 'u': "user", 'v': "volume", 'w': "workdir",
}

// switches are the flags of docker run without a value. All others have one.
var switches = map[string]bool{
	"detach": true, "disable-content-trust": true, "init": true, "interactive": true, "no-healthcheck": true, "oom-kill-disable": true,
	"privileged": true, "publish-all": true, "quiet": true, "read-only": true, "replace": true, "rm": true, "sig-proxy": true, "tty": true,
	"use-api-socket": true,
}

// nextFlags reads the flags of one word, such as -it, and their value, which may be the next word. It is nil
// when the flags are over.
func nextFlags(words []word) (flags []dockerFlag, rest []word) {
	at, text := words[0].at, words[0].text
	rest = words[1:]
	value := func() string {
		if len(rest) == 0 {
			return ""
		}
		next := rest[0].text
		rest = rest[1:]
		return next
	}
	if long, found := strings.CutPrefix(text, "--"); found {
		name, given, hasValue := strings.Cut(long, "=")
		switch {
		case name == "":
			return nil, rest
		case hasValue:
			return []dockerFlag{{at, name, given}}, rest
		case switches[name]:
			return []dockerFlag{{at, name, "true"}}, rest
		default:
			return []dockerFlag{{at, name, value()}}, rest
		}
	}
	for i := 1; i < len(text); i++ {
		name := shortFlags[text[i]]
		if switches[name] {
			flags = append(flags, dockerFlag{at, name, "true"})
			continue
		}
		given := strings.TrimPrefix(text[i+1:], "=")
		if given == "" {
			given = value()
		}
		return append(flags, dockerFlag{at, name, given}), rest
	}
	return flags, rest
}

// dockerFlag carries one flag over, or names it.
func (c clientCommand) dockerFlag(flag dockerFlag) {
	switch flag.name {
	case "interactive", "rm", "init", "sig-proxy", "quiet": // as every pod of Slipway has it
	case "env":
		c.dockerEnv(flag)
	case "entrypoint":
		c.spec.Command = []string{literal(flag.value)}
	case "workdir":
		c.spec.WorkingDir = flag.value
	case "read-only":
		isReadOnly := flag.value == "true"
		c.securityContext().ReadOnlyRootFilesystem = &isReadOnly
	case "user":
		c.dockerUser(flag)
	case "memory", "cpus":
		c.dockerLimit(flag)
	case "pull":
		c.dockerPull(flag)
	default:
		c.dropped(flag.at, dockerReason(flag.name))
	}
}

func dockerReason(name string) string {
	switch name {
	case "volume", "mount":
		return "docker run mounts a file or directory of your machine: put it into a ConfigMap, a Secret or a claim, and name that in spec.volumes"
	case "env-file":
		return clientReasons["envFile"]
	case "network", "net", "publish", "publish-all", "add-host", "dns":
		return "the network of a pod is that of the cluster: clients find the server at its Service"
	case "name", "hostname", "label":
		return "pods have names and labels of their own"
	case "tty", "detach":
		return "a server on standard input and output has no terminal"
	case "":
		return "this flag of docker run is not known"
	default:
		return "--" + name + " of docker run has no counterpart that can be chosen for you"
	}
}

// dockerEnv reads -e NAME=VALUE, or -e NAME, which passes a variable of the client's environment on.
func (c clientCommand) dockerEnv(flag dockerFlag) {
	name, value, hasValue := strings.Cut(flag.value, "=")
	if hasValue {
		c.clientEnv(flag.at, name, value, c.inputs)
		return
	}
	if field := c.root.at("env", name); field != nil {
		c.clientEnv(field, name, c.scalar(field), c.inputs)
		return
	}
	c.secretVariable(flag.at, name, changeMe, "only your machine knows the value")
}

func (c clientCommand) securityContext() *corev1.SecurityContext {
	if c.spec.SecurityContext == nil {
		c.spec.SecurityContext = &corev1.SecurityContext{}
	}
	return c.spec.SecurityContext
}

func (c clientCommand) dockerUser(flag dockerFlag) {
	user, group, hasGroup := strings.Cut(flag.value, ":")
	uid, err := strconv.ParseInt(user, 10, 32)
	if err != nil || uid < 0 {
		c.dropped(flag.at, "only the number of a user can be carried over: set spec.securityContext.runAsUser")
		return
	}
	c.securityContext().RunAsUser = &uid
	if !hasGroup {
		return
	}
	gid, err := strconv.ParseInt(group, 10, 32)
	if err != nil || gid < 0 {
		c.dropped(flag.at, "only the number of a group can be carried over: set spec.securityContext.runAsGroup")
		return
	}
	c.securityContext().RunAsGroup = &gid
}

var (
	dockerCPUs   = regexp.MustCompile(`^[0-9]{1,4}(\.[0-9]{1,3})?$`)
	dockerMemory = regexp.MustCompile(`^([0-9]{1,15})([bkmgBKMG]?)$`)
	memoryUnits  = map[string]string{"": "", "b": "", "k": "Ki", "m": "Mi", "g": "Gi"}
)

// dockerLimit reads the limits whose units differ from those of Kubernetes.
func (c clientCommand) dockerLimit(flag dockerFlag) {
	name, written := corev1.ResourceCPU, ""
	if flag.name == "memory" {
		name = corev1.ResourceMemory
		if found := dockerMemory.FindStringSubmatch(flag.value); found != nil {
			written = found[1] + memoryUnits[strings.ToLower(found[2])]
		}
	} else if dockerCPUs.MatchString(flag.value) {
		written = flag.value
	}
	quantity, err := resource.ParseQuantity(written)
	if err != nil {
		c.dropped(flag.at, "this amount cannot be read: set spec.resources.limits")
		return
	}
	if c.spec.Resources.Limits == nil {
		c.spec.Resources.Limits = corev1.ResourceList{}
	}
	c.spec.Resources.Limits[name] = quantity
}

func (c clientCommand) dockerPull(flag dockerFlag) {
	policies := map[string]corev1.PullPolicy{"always": corev1.PullAlways, "missing": corev1.PullIfNotPresent, "never": corev1.PullNever}
	policy, found := policies[flag.value]
	if !found {
		c.dropped(flag.at, "docker knows always, missing and never: set spec.imagePullPolicy")
		return
	}
	c.spec.ImagePullPolicy = policy
}
