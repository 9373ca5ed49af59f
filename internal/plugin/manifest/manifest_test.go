package manifest

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// cases are the directories in testdata that have an input.
func cases(t testing.TB) map[string]File {
	t.Helper()
	inputs, err := filepath.Glob(filepath.Join("testdata", "*", "input.*"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]File{}
	for _, input := range inputs {
		content, err := os.ReadFile(input)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(filepath.Dir(input))] = File{Name: filepath.Base(input), Content: content}
	}
	if len(files) < 10 {
		t.Fatalf("found %d cases", len(files))
	}
	return files
}

// remarks are the remarks of a result, one in a line.
func remarks(result Result) string {
	var b strings.Builder
	for _, group := range []struct {
		name string
		list []Remark
	}{{"dropped", result.Dropped}, {"changed", result.Changed}} {
		for _, remark := range group.list {
			fmt.Fprintf(&b, "%s | %s | %s | %s | %s\n", group.name, remark.File, remark.Object, remark.Field, remark.Why)
		}
	}
	return b.String()
}

func encoded(t testing.TB, result Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := Encode(&b, result); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (-update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes what it got):\n%s", file, diff)
	}
}

func TestGolden(t *testing.T) {
	for name, file := range cases(t) {
		t.Run(name, func(t *testing.T) {
			result, err := Import([]File{file}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", name, "expected.yaml"), encoded(t, result))
			golden(t, filepath.Join("testdata", name, "remarks.txt"), remarks(result))
			if err := errors.Join(refusals(t, result)...); err != nil {
				t.Errorf("an API server would refuse: %v", err)
			}
		})
	}
}
