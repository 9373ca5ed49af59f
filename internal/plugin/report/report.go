// Package report collects what shows why MCP servers do not work into one archive that can be shared: objects, events,
// logs and metrics, without values of Secrets, variables, commands, arguments and headers.
//
// Values are removed in two steps. First all objects of a server are read, and the values in the fields that hold such
// values are learned, together with those of the Secrets that the server refers to and of the ConfigMaps that its
// variables come from, as far as the caller may read them. Then the objects are written without these fields, and
// wherever else a learned value stands, in a message, an event or a log, it is removed, too, and so are parts of it that
// programs write alone. Values of fewer than 6 bytes and ordinary words are not looked for there.
//
// What the caller may not read is named in the archive, and the rest goes on. One server is in memory at a time.
package report

import (
	"archive/zip"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-mcp/slipway/internal/plugin/manifest"
	"github.com/slipway-mcp/slipway/internal/text"
	"github.com/slipway-mcp/slipway/internal/version"
)

// Bounds of what the archive has of one log.
const (
	LogLines = 1000
	LogBytes = 5 << 20
)

// Log names a log.
type Log struct {
	Pod       types.NamespacedName
	Container string
	Previous  bool // of the container before its last restart
}

// Source is what a report is made from, all with the caller's own rights.
type Source struct {
	API client.Reader
	// Version is that of Kubernetes.
	Version func() (string, error)
	// OpenLog opens the last LogLines lines of a log.
	OpenLog func(context.Context, Log) (io.ReadCloser, error)
	// OpenMetrics opens the metrics of the adapter in a pod.
	OpenMetrics func(context.Context, types.NamespacedName) (io.ReadCloser, error)
}

// Watcher gets the progress of a report.
type Watcher struct {
	// Begin is called before each server.
	Begin func(server types.NamespacedName, number, of int)
	// Missing is called for each line of missing.txt.
	Missing func(line string)
}

// Summary says what is in an archive.
type Summary struct {
	Servers, Files int
	Missing        int // lines of missing.txt
}

// Write writes a report of some servers, and of what all have in common. Name is the directory in the archive.
func Write(ctx context.Context, w io.Writer, name string, now time.Time, source Source, servers []types.NamespacedName, watcher Watcher) (Summary, error) {
	c := &collector{
		Source: source, watcher: watcher, all: NewValues(), isMissing: map[string]bool{},
		archive: archive{zip: zip.NewWriter(w), root: name, now: now},
	}
	slices.SortFunc(servers, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	servers = slices.Compact(servers)
	for i, server := range servers {
		watcher.Begin(server, i+1, len(servers))
		if err := c.server(ctx, server); err != nil {
			return Summary{}, fmt.Errorf("report MCPServer %s: %w", server, err)
		}
	}
	if err := c.cluster(ctx, now); err != nil {
		return Summary{}, fmt.Errorf("report the cluster: %w", err)
	}
	if err := c.finish(); err != nil {
		return Summary{}, err
	}
	return Summary{Servers: len(servers), Files: c.archive.files, Missing: len(c.missing)}, nil
}

// collector makes one report.
type collector struct {
	Source
	watcher   Watcher
	archive   archive
	all       *Values // of all servers, for logs of the manager
	events    namespaceEvents
	missing   []string
	isMissing map[string]bool
}

// lack notes what the report does not have. The same is noted once: with a thousand servers, a right that is missing is
// not missing a thousand times.
func (c *collector) lack(what string, err error) {
	line := text.Line(fmt.Sprintf("%s: %v", what, err), longestLine)
	if c.isMissing[line] {
		return
	}
	c.isMissing[line] = true
	c.missing = append(c.missing, line)
	c.watcher.Missing(line)
}

const longestLine = 1 << 10

// lackObject is lack for an object of a kind that the caller may not read, or the cluster does not serve.
func (c *collector) lackObject(kind string, key types.NamespacedName, err error) {
	switch {
	case apierrors.IsForbidden(err) && key.Namespace == "":
		c.lack(kind+" of the cluster", errNotAllowed)
	case apierrors.IsForbidden(err):
		c.lack(kind+" in namespace "+key.Namespace, errNotAllowed)
	case meta.IsNoMatchError(err):
		c.lack(kind, errNotServed)
	default:
		c.lack(kind+" "+key.String(), err)
	}
}

type constantError string

func (e constantError) Error() string { return string(e) }

const (
	errNotAllowed = constantError("you may not read them")
	errNotServed  = constantError("the cluster does not have this kind")
)

// finish writes what is missing, and ends the archive.
func (c *collector) finish() error {
	lines := "Nothing is missing."
	if len(c.missing) > 0 {
		lines = strings.Join(c.missing, "\n")
	}
	if err := c.archive.add("missing.txt", []byte(c.all.Remove(lines)+"\n")); err != nil {
		return err
	}
	if err := c.archive.zip.Close(); err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	return nil
}

// addVersions writes what runs where.
func (c *collector) addVersions(now time.Time) error {
	kubernetes, err := c.Version()
	if err != nil {
		c.lack("version of Kubernetes", err)
	}
	return c.archive.addYAML("versions.yaml", map[string]string{
		"kubernetes": kubernetes, "kubectlMCP": version.Get().String(), "time": now.UTC().Format(time.RFC3339),
	})
}

// archive is the file that is being written.
type archive struct {
	zip   *zip.Writer
	root  string
	now   time.Time
	files int
}

// add writes a file. Nothing of it stays in memory.
func (a *archive) add(name string, content []byte) error {
	a.files++
	file, err := a.zip.CreateHeader(&zip.FileHeader{Name: path.Join(a.root, name), Method: zip.Deflate, Modified: a.now})
	if err == nil {
		_, err = file.Write(content)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func (a *archive) addYAML(name string, value any) error {
	content, err := manifest.YAML(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return a.add(name, content)
}

// lackText is lack for a log or metrics.
func (c *collector) lackText(file, kind string, pod types.NamespacedName, err error) {
	if apierrors.IsForbidden(err) {
		c.lack(kind+" in namespace "+pod.Namespace, errNotAllowed)
		return
	}
	c.lack(file, err)
}
