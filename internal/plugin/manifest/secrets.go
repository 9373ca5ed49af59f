package manifest

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// changeMe stands where a person must write a value.
const changeMe = "CHANGE_ME"

// secretWords are parts of names of variables, flags and headers whose values are secret.
var secretWords = map[string]bool{
	"apikey": true, "auth": true, "authorization": true, "bearer": true, "cookie": true, "cookies": true, "credential": true,
	"credentials": true, "dsn": true, "key": true, "keys": true, "passphrase": true, "passwd": true, "password": true, "pat": true,
	"pw": true, "pwd": true, "secret": true, "secrets": true, "token": true, "tokens": true,
}

var (
	words = regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)
	// Names in which the words are not set apart, such as GITHUBTOKEN.
	secretEnd = regexp.MustCompile(`(?i)(apikey|passw(or)?d|passphrase|secret|token|credentials?)$`)
	number    = regexp.MustCompile(`^[0-9]{1,9}$`)
)

// isSecretName says whether the value of a variable, flag or header is likely to be secret.
func isSecretName(name, value string) bool {
	if name == "PWD" || name == "OLDPWD" { // directories
		return false
	}
	if value == "true" || value == "false" || number.MatchString(value) && strings.Contains(strings.ToLower(name), "tokens") {
		return false // a switch, or the size of an answer
	}
	for _, word := range words.FindAllString(name, -1) {
		if secretWords[strings.ToLower(word)] || secretEnd.MatchString(word) {
			return true
		}
	}
	return false
}

// secretValue matches what is secret whatever its name: tokens of well-known services, keys, and URLs
// with a password.
var secretValue = regexp.MustCompile(`^(gh[oprsu]_|github_pat_|glpat-|sk-|xox[a-z]-|AKIA|AIza|ya29\.|eyJ[A-Za-z0-9_-]{10,}\.)` +
	`|(?i)^(bearer|basic|token)\s+\S` +
	`|(?i)^[a-z][a-z0-9+.-]*://[^/?#\s]*:[^/?#\s]*@` +
	`|(?i)[?&](access_?token|api_?key|key|password|secret|sig|token)=.` +
	`|-----BEGIN [A-Z ]*PRIVATE KEY`)

func isSecret(name, value string) bool {
	return isSecretName(name, value) || secretValue.MatchString(value)
}

// stub is what stands in the Secret for a value.
func (d *draft) stub(value string) string {
	if d.options.WithSecrets {
		return value
	}
	return changeMe
}

// podEnv adds a variable as a pod has it: $(NAME) in its value stands for another variable. A value
// with such a reference stays, because those of Secrets are taken as they are.
func (d *draft) podEnv(at *node, variable corev1.EnvVar) {
	isPlain := !strings.Contains(variable.Value, "$(")
	switch {
	case variable.ValueFrom != nil || !isSecret(variable.Name, variable.Value):
		d.addEnv(at, variable)
	case isPlain:
		d.secretEnv(at, variable.Name, strings.ReplaceAll(variable.Value, "$$", "$"))
	default:
		d.addEnv(at, variable)
		d.changed(at, looksSecret+", but stays, because it names other variables: move the secret part to a Secret")
	}
}

// secretEnv adds a variable whose value goes into the Secret.
func (d *draft) secretEnv(at *node, name, value string) {
	d.secretVariable(at, name, d.stub(value), looksSecret)
}

// secretVariable adds a variable with what the Secret holds for it.
func (d *draft) secretVariable(at *node, name, value, why string) {
	if wrong := wrongName(name); wrong != "" {
		d.dropped(at, wrong)
		return
	}
	d.addEnv(at, corev1.EnvVar{Name: name, ValueFrom: d.addSecret(name, value)})
	why += ": it is in Secret " + d.secret.Name + ", key " + name
	if strings.Contains(value, changeMe) {
		why += ", where you replace " + changeMe
	}
	d.changed(at, why)
}

// literal writes a text so that Kubernetes, which replaces $(NAME) in variables and commands, leaves it
// as it is.
func literal(text string) string {
	if strings.Contains(text, "$(") || strings.Contains(text, "$$") {
		return strings.ReplaceAll(text, "$", "$$")
	}
	return text
}
