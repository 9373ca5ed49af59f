package plugin

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// The names of the plugin: kubectl mcp, and kubectl slipway where mcp is too general a word.
const (
	usualName = "mcp"
	otherName = "slipway"
)

// calledAs says by which name a program file was called, and whether kubectl called it to complete a
// command line.
func calledAs(program string) (name string, completing bool) {
	// Names of files on Windows have an extension, and no case.
	base := strings.TrimSuffix(strings.ToLower(filepath.Base(program)), ".exe")
	name, completing = strings.CutPrefix(base, "kubectl_complete-")
	if strings.TrimPrefix(name, "kubectl-") == otherName {
		return otherName, completing
	}
	return usualName, completing
}

// called is the name that the user knows the plugin by.
func (e *environment) called() string { return "kubectl " + cmp.Or(e.name, usualName) }

// inOwnName puts the name that the user knows into what the plugin says of itself.
func (e *environment) inOwnName(words string) string {
	return strings.ReplaceAll(words, "kubectl "+usualName, e.called())
}

// rename makes the help of commands use the name that the user knows.
func (e *environment) rename(command *cobra.Command) {
	for _, words := range []*string{&command.Short, &command.Long, &command.Example} {
		*words = e.inOwnName(*words)
	}
	for _, child := range command.Commands() {
		e.rename(child)
	}
}

// renamed makes a failure use it, too.
func (e *environment) renamed(failed *failure) *failure {
	return &failure{failed.code, errors.New(e.inOwnName(failed.Error())), e.inOwnName(failed.next)}
}
