// Command crdcompat compares a CRD with the one of the last release, its baseline, and prints every
// change that can break a user: a field that is gone, or an object that was valid and no longer is.
//
//	crdcompat BASELINE CRD
package main

import (
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "crdcompat: name the baseline and the CRD, as in: crdcompat baseline.yaml crd.yaml")
		os.Exit(2)
	}
	problems, err := compareFiles(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "crdcompat:", err)
		os.Exit(2)
	}
	for _, problem := range problems {
		fmt.Fprintln(os.Stderr, "crdcompat:", problem)
	}
	if len(problems) > 0 {
		fmt.Fprintf(os.Stderr, "crdcompat: %d changes can break objects or clients of %s. Undo them. If you are sure that no object and no "+
			"client can break, copy the CRD over the baseline and say why in the commit.\n", len(problems), os.Args[1])
		os.Exit(1)
	}
}

func compareFiles(baseline, now string) ([]string, error) {
	before, err := read(baseline)
	if err != nil {
		return nil, err
	}
	after, err := read(now)
	if err != nil {
		return nil, err
	}
	return compare(before, after), nil
}

func read(file string) (*apiextensionsv1.CustomResourceDefinition, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read CRD: %w", err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(content, crd); err != nil {
		return nil, fmt.Errorf("decode CRD %s: %w", file, err)
	}
	return crd, nil
}
