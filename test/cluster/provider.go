package main

import (
	"errors"
	"fmt"
	"path/filepath"
)

const (
	providerKind     = "kind"
	providerLocal    = "local"
	providerExisting = "existing"
)

// stateDir is the directory that holds the kubeconfig, and all else that the
// local provider has.
func stateDir(getenv func(string) string, uid int) (string, error) {
	if dir := getenv("SLIPWAY_CLUSTER_DIR"); dir != "" {
		return dir, nil
	}
	if uid == 0 {
		return "/var/lib/slipway-cluster", nil
	}
	if state := getenv("XDG_STATE_HOME"); state != "" {
		return filepath.Join(state, "slipway-cluster"), nil
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "state", "slipway-cluster"), nil
	}
	return "", errors.New("find state directory: set SLIPWAY_CLUSTER_DIR or HOME")
}

// choose returns the provider for a command: what was asked for, else what is
// up, else what the machine allows.
func choose(command, asked, recorded string, dockerAnswers func() bool) (string, error) {
	switch asked {
	case "", providerKind, providerLocal, providerExisting:
	default:
		return "", fmt.Errorf("CLUSTER=%s: want kind, local or existing", asked)
	}
	switch {
	case asked == providerExisting:
		return asked, nil
	case asked != "" && recorded != "" && asked != recorded:
		return "", fmt.Errorf("%s: a cluster of provider %s is up, not %s: take it down first, with CLUSTER=%s or without CLUSTER",
			command, recorded, asked, recorded)
	case asked != "":
		return asked, nil
	case recorded != "":
		return recorded, nil
	case dockerAnswers():
		return providerKind, nil
	default:
		return providerLocal, nil
	}
}
