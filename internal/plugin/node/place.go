package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// directory is where npx runs, and remove what to do afterwards.
//
// npx takes packages and the .npmrc of the directory that it runs in, or of the next above it that has a
// package.json or node_modules, before it asks a registry. It also runs programs of the node_modules of every
// directory above. So it runs neither where the user happens to be, which may be a checkout of someone else's,
// nor in /tmp, where every user of the machine can create node_modules.
func (p Package) directory() (directory string, remove func() error, err error) {
	if p.Installed != "" {
		return p.Installed, func() error { return nil }, nil
	}
	users, err := os.UserCacheDir()
	if err != nil {
		return "", nil, fmt.Errorf("find a directory for npx: %w", err)
	}
	const onlyOwner = 0o700
	if err := os.MkdirAll(users, onlyOwner); err != nil {
		return "", nil, fmt.Errorf("create a directory for npx: %w", err)
	}
	directory, err = os.MkdirTemp(users, "kubectl-mcp-npx-")
	if err != nil {
		return "", nil, fmt.Errorf("create a directory for npx: %w", err)
	}
	remove = func() error {
		if err := os.RemoveAll(directory); err != nil {
			return fmt.Errorf("remove the directory of npx: %w", err)
		}
		return nil
	}
	// Here ends the search of npx for a project, which would find that of a user who has one at home.
	if err := os.Mkdir(filepath.Join(directory, "node_modules"), onlyOwner); err != nil {
		return "", nil, errors.Join(fmt.Errorf("create a directory for npx: %w", err), remove())
	}
	return directory, remove, nil
}

// runner is the command line of npx. On Windows npx is a script of cmd.exe, which parses arguments again: an &
// would start another command. There, Node.js runs the JavaScript that the script would. Only where that is
// not beside the script, as with some managers of versions, cmd.exe reads the arguments, which are the user's own.
func runner(npx string) []string {
	if !strings.EqualFold(filepath.Ext(npx), ".cmd") {
		return []string{npx}
	}
	program := filepath.Join(filepath.Dir(npx), "node_modules", "npm", "bin", "npx-cli.js")
	if _, err := os.Stat(program); err != nil {
		return []string{npx}
	}
	return []string{"node", program}
}
