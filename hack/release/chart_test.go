package main

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestChartFiles(t *testing.T) {
	chart := fstest.MapFS{
		"Chart.yaml":                   {Data: []byte("apiVersion: v2\nname: slipway\n# of the last release\nversion: 0.0.0\nappVersion: v0.0.0\n")},
		".helmignore":                  {Data: []byte("# what the chart does not need\n.helmignore\n*.orig\ntestdata/\n/docs\ntemplates/only-here.txt\n")},
		"values.yaml":                  {Data: []byte("a: 1\n\n# -- Images.\nimage:\n  # -- Of both.\n  prefix: localhost/slipway\n\n  tag: \"\"\nother:\n  prefix: b\n"), Mode: 0o600},
		"values.yaml.orig":             {},
		"templates/deployment.yaml":    {Data: []byte("kind: Deployment\n")},
		"templates/a.orig":             {},
		"templates/only-here.txt":      {},
		"only-here.txt":                {Data: []byte("kept")},
		"templates/testdata/case.yaml": {},
		"docs/page.md":                 {},
		"templates/docs/page.md":       {Data: []byte("kept")},
	}
	files, name, err := chartFiles(chart, "0.1.0", "v0.1.0", "registry.example/slipway")
	if err != nil || name != "slipway" {
		t.Fatalf("name %q, %v", name, err)
	}
	archive, err := tarGz(files, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, unpacked := range unpackTarGz(t, archive) {
		got[name] = string(unpacked.content)
		if unpacked.mode != 0o644 {
			t.Errorf("%s has mode %o", name, unpacked.mode)
		}
	}
	want := map[string]string{
		"slipway/Chart.yaml":                "apiVersion: v2\nname: slipway\n# of the last release\nversion: \"0.1.0\"\nappVersion: \"v0.1.0\"\n",
		"slipway/values.yaml":               "a: 1\n\n# -- Images.\nimage:\n  # -- Of both.\n  prefix: registry.example/slipway\n\n  tag: \"\"\nother:\n  prefix: b\n",
		"slipway/only-here.txt":             "kept",
		"slipway/templates/deployment.yaml": "kind: Deployment\n",
		"slipway/templates/docs/page.md":    "kept",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestChartFilesRefuses(t *testing.T) {
	const metadata = "name: slipway\nversion: 0.0.0\nappVersion: v0.0.0\n"
	values := &fstest.MapFile{Data: []byte("image:\n  prefix: a\n")}
	for name, test := range map[string]struct {
		chart fstest.MapFS
		want  string
	}{
		"no appVersion":           {fstest.MapFS{"Chart.yaml": {Data: []byte("name: slipway\nversion: 0.0.0\n")}}, "must have name, version and appVersion"},
		"no object":               {fstest.MapFS{"Chart.yaml": {Data: []byte("[]")}}, "not an object"},
		"an exception":            {fstest.MapFS{"Chart.yaml": {Data: []byte(metadata)}, "values.yaml": values, ".helmignore": {Data: []byte("!kept.yaml\n")}}, `"!kept.yaml" is not supported`},
		"a broken pattern":        {fstest.MapFS{"Chart.yaml": {Data: []byte(metadata)}, "values.yaml": values, ".helmignore": {Data: []byte("[\n")}}, "not supported"},
		"many directories":        {fstest.MapFS{"Chart.yaml": {Data: []byte(metadata)}, "values.yaml": values, ".helmignore": {Data: []byte("a/**/b\n")}}, "not supported"},
		"a link out of it":        {fstest.MapFS{"Chart.yaml": {Data: []byte(metadata)}, "values.yaml": values, "templates/x": {Data: []byte("../../secret"), Mode: os.ModeSymlink}}, "templates/x is not a regular file"},
		"no Chart.yaml":           {fstest.MapFS{"values.yaml": {}}, "Chart.yaml"},
		"no values.yaml":          {fstest.MapFS{"Chart.yaml": {Data: []byte(metadata)}}, "values.yaml"},
		"no image.prefix":         {fstest.MapFS{"Chart.yaml": {Data: []byte(metadata)}, "values.yaml": {Data: []byte("image: {}\nother:\n  prefix: a\n")}}, "set image.prefix in values.yaml"},
		"a prefix in other words": {fstest.MapFS{"Chart.yaml": {Data: []byte(metadata)}, "values.yaml": {Data: []byte("image: {prefix: a}\n")}}, `it is "a" and was to become`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := chartFiles(test.chart, "0.1.0", "v0.1.0", "registry.example/slipway"); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// The chart of this checkout can be packed.
func TestChartOfTheCheckout(t *testing.T) {
	files, name, err := chartFiles(os.DirFS("../../charts/slipway"), "0.1.0", "v0.1.0", "registry.example/slipway")
	if err != nil || name != "slipway" {
		t.Fatalf("name %q, %v", name, err)
	}
	found := map[string]bool{}
	for _, f := range files {
		found[f.name] = true
		if f.name != "slipway/Chart.yaml" {
			continue
		}
		var metadata struct{ Version, AppVersion string }
		if err := yaml.Unmarshal(f.content, &metadata); err != nil || metadata.Version != "0.1.0" || metadata.AppVersion != "v0.1.0" {
			t.Errorf("%+v, %v", metadata, err)
		}
	}
	for _, name := range []string{"slipway/Chart.yaml", "slipway/values.yaml"} {
		if !found[name] {
			t.Errorf("no %s", name)
		}
	}
}
