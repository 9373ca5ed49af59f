// Command crdquantity tightens the pattern of quantities in CRDs, in place.
//
// The pattern that Kubernetes' types carry lets strings through that its own parser
// refuses, such as "1e1.5". One stored object with such a string cannot be decoded,
// and with it fails every list and watch of the kind: whoever may write one object
// in one namespace would stop the operator for all.
package main

import (
	"bytes"
	"fmt"
	"os"
)

const (
	loose = `pattern: ^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	tight = `pattern: ^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$`
)

func main() {
	for _, file := range os.Args[1:] {
		if err := rewrite(file); err != nil {
			fmt.Fprintln(os.Stderr, "crdquantity:", err)
			os.Exit(1)
		}
	}
}

func rewrite(file string) error {
	before, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read CRD: %w", err)
	}
	after := bytes.ReplaceAll(before, []byte(loose), []byte(tight))
	if !bytes.Contains(after, []byte(tight)) {
		return fmt.Errorf("tighten quantities: %s has none of the pattern that is known", file)
	}
	if err := os.WriteFile(file, after, 0o644); err != nil { //nolint:gosec // it is a file of the repository
		return fmt.Errorf("write CRD: %w", err)
	}
	return nil
}
