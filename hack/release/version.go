package main

import (
	"errors"
	"fmt"
	"strings"

	semver "k8s.io/apimachinery/pkg/util/version"
)

// checkVersion takes what can be a git tag, the tag of an image, a label and a version of krew and Helm at once.
func checkVersion(version string) error {
	const example = "a release is called like v0.1.0 or v0.2.0-rc.1: make release-dry-run VERSION=v0.1.0"
	if version == "" {
		return errors.New("name the VERSION: " + example)
	}
	if !strings.HasPrefix(version, "v") {
		return fmt.Errorf("VERSION is %q and must begin with v: %s", version, example)
	}
	parsed, err := semver.ParseSemantic(version)
	if err != nil || "v"+parsed.String() != version {
		return fmt.Errorf("VERSION is %q, which is not a semantic version: %s", version, example)
	}
	if parsed.BuildMetadata() != "" {
		return fmt.Errorf("VERSION is %q, and the tag of an image cannot have a +: %s", version, example)
	}
	if len(version) > 63 {
		return fmt.Errorf("VERSION has %d characters, and a label can have 63: %s", len(version), example)
	}
	return nil
}
