package report

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// manyServers is a cluster of any number of servers, each with a pod.
type manyServers struct{}

// Get implements client.Reader.
func (manyServers) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	found := into.(*unstructured.Unstructured)
	if found.GetKind() != serverKind.Kind {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	found.SetName(key.Name)
	found.SetNamespace(key.Namespace)
	found.Object["spec"] = object{"image": "tickets", "transport": object{"type": "stdio"}, "env": []any{object{"name": "A", "value": "value-of-" + key.Name}}}
	return nil
}

// List implements client.Reader.
func (manyServers) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list := into.(*unstructured.UnstructuredList)
	if list.GetKind() != podKind.Kind+"List" {
		return nil
	}
	list.Items = []unstructured.Unstructured{{Object: object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "pod", "namespace": "fleet"},
		"spec": object{"containers": []any{object{"name": "mcp-server"}}},
	}}}
	return nil
}

// A report of many servers, whose logs are much larger than memory should be, has one server in memory at a time.
func TestMemory(t *testing.T) {
	const many, most = 36, 16 << 20
	line := strings.Repeat("a line of a log ", 64) + "\n"
	log := strings.Repeat(line, 2<<20/len(line))
	var servers []types.NamespacedName
	for i := range many {
		servers = append(servers, types.NamespacedName{Namespace: "fleet", Name: fmt.Sprintf("server-%03d", i)})
	}
	peak, read := uint64(0), 0
	written, err := Write(t.Context(), io.Discard, "report", time.Now(), Source{
		API: manyServers{}, Version: func() (string, error) { return "v1", nil },
		OpenLog: func(context.Context, Log) (io.ReadCloser, error) {
			read += len(log)
			return io.NopCloser(strings.NewReader(log)), nil
		},
	}, servers, Watcher{Missing: func(line string) { t.Errorf("missing: %s", line) }, Begin: func(types.NamespacedName, int, int) {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		peak = max(peak, stats.HeapAlloc)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if written.Servers != many || read < 4*most {
		t.Errorf("%d servers, read %d bytes", written.Servers, read)
	}
	t.Logf("%d MiB in memory", peak>>20)
	if peak > most {
		t.Errorf("%d MiB are in memory, of logs of %d MiB", peak>>20, read>>20)
	}
}

// The last line of a text that is cut may end within a value.
func TestReadText(t *testing.T) {
	for name, test := range map[string]struct {
		text, want string
		wantError  error
	}{
		"a text":      {text: "a\nb", want: "a\nb"},
		"nothing":     {},
		"a long text": {text: "a\n" + strings.Repeat("x", LogBytes), want: "a\n", wantError: errCut},
		"a long line": {text: strings.Repeat("x", LogBytes), wantError: errCut},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readText(t.Context(), func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(test.text)), nil })
			if got != test.want || err != test.wantError { //nolint:errorlint // it is not wrapped
				t.Errorf("got %.20q, %v", got, err)
			}
		})
	}
}
