package operator

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

var errNoCRD = &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "mcp.slipway.dev", Kind: "MCPServer"}}

func fakeCache(t *testing.T) *informertest.FakeInformers {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := mcpv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &informertest.FakeInformers{Scheme: scheme}
}

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		change   func(*informertest.FakeInformers)
		unsynced []string
		before   bool // Ask before the first attempt to watch.
		want     string
	}{
		"everything is there": {change: func(*informertest.FakeInformers) {}},
		"not started yet":     {change: func(*informertest.FakeInformers) {}, before: true, want: "not started to watch"},
		"no CRD": {
			change: func(f *informertest.FakeInformers) { f.Error = errNoCRD },
			want:   "install the CustomResourceDefinition mcpservers.mcp.slipway.dev",
		},
		"no API server": {
			change: func(f *informertest.FakeInformers) { f.Error = errors.New("connection refused") },
			want:   "watch MCPServers: connection refused",
		},
		"the list is on its way": {
			change: func(f *informertest.FakeInformers) {
				f.InformersByGVK = map[schema.GroupVersionKind]toolscache.SharedIndexInformer{
					mcpv1alpha1.SchemeGroupVersion.WithKind("MCPServer"): controllertest.NewFakeInformer(),
				}
			},
			unsynced: []string{"pods"},
			want:     "may list and watch mcpservers, pods",
		},
		"other lists are on their way": {
			change:   func(*informertest.FakeInformers) {},
			unsynced: []string{"pods", "secrets"},
			want:     "may list and watch pods, secrets",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fake := fakeCache(t)
			test.change(fake)
			readiness := newCacheReadiness(fake, func() []string { return test.unsynced })
			if !test.before {
				readiness.watch(t.Context())
			}
			err := readiness.check(httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil))
			if test.want == "" && err != nil {
				t.Errorf("check: %v, want none", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("check: %v, want %q", err, test.want)
			}
		})
	}
}

func TestEachReasonIsLoggedOnce(t *testing.T) {
	var lines []string
	logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	ctx := log.IntoContext(t.Context(), logger)
	fake := fakeCache(t)
	readiness := newCacheReadiness(fake, func() []string { return nil })

	for _, attempt := range []struct {
		err   error
		done  bool
		lines int
	}{
		{errors.New("connection refused"), false, 1},
		{errors.New("connection refused"), false, 1},
		{errNoCRD, false, 2},
		{errNoCRD, false, 2},
		{nil, true, 2},
	} {
		fake.Error = attempt.err
		if done := readiness.watch(ctx); done != attempt.done || len(lines) != attempt.lines {
			t.Fatalf("watch with %v: done %t with %d lines, want %t with %d; the log:\n%s",
				attempt.err, done, len(lines), attempt.done, attempt.lines, strings.Join(lines, "\n"))
		}
	}
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "install the CustomResourceDefinition") }) {
		t.Errorf("the log does not say what to do:\n%s", strings.Join(lines, "\n"))
	}
}

func TestStartEndsWithTheContext(t *testing.T) {
	fake := fakeCache(t)
	fake.Error = errNoCRD
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newCacheReadiness(fake, func() []string { return nil }).Start(ctx); err != nil {
		t.Errorf("Start: %v, want none: a manager that is told to stop has not failed", err)
	}
}
