package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/plugin/fleet"
	"github.com/slipway-mcp/slipway/internal/plugin/link"
	"github.com/slipway-mcp/slipway/internal/plugin/report"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

func (e *environment) report() *cobra.Command {
	var file string
	command := &cobra.Command{
		Use:   "report [NAME...]",
		Short: "Collect everything that helps to find a problem, without secrets, into a file",
		Long: "Write a zip file with the objects, events, logs and metrics of some servers or of all, and of the manager,\n" +
			"with all versions. The command removes the values of Secrets, variables, commands, arguments and headers, also\n" +
			"from logs, events and messages, unless they have fewer than 6 bytes or are common words. To find these values,\n" +
			"it reads the Secrets that a server refers to and the ConfigMaps that its variables come from. The file\n" +
			"missing.txt names what you have no right to read. Read a report before you share it: everything else is in it.",
		Example: "  kubectl mcp report tickets\n  kubectl mcp report -A --output-file - > report.zip",
		RunE: func(command *cobra.Command, names []string) error {
			return e.writeReport(command.Context(), names, file)
		},
	}
	command.Flags().BoolVarP(&e.allNamespaces, "all-namespaces", "A", false, "report the servers of all namespaces")
	command.Flags().StringVar(&file, "output-file", "", "`file` to write, which must not exist; - is standard output (mcp-report-TIME.zip unless set)")
	return command
}

// writeReport writes a report to a file, or to standard output.
func (e *environment) writeReport(ctx context.Context, names []string, file string) error {
	if file == "-" && e.Screen.IsTerminal {
		return fail(exitUnexpected, "Redirect it: kubectl mcp report --output-file - > report.zip", "a zip file cannot be shown on a terminal")
	}
	servers, source, err := e.reportSource(ctx, names)
	if err != nil {
		return err
	}
	now := e.Now()
	directory := "mcp-report-" + now.UTC().Format("20060102-150405")
	if file == "" {
		file = directory + ".zip"
	}
	written := &counted{Writer: e.Out}
	finish := func(error) error { return nil }
	if file != "-" {
		if written.Writer, finish, err = createFile(file, "--output-file"); err != nil {
			return err
		}
	}
	summary, err := report.Write(ctx, written, directory, now, source, servers, e.reportWatcher())
	if err := errors.Join(err, finish(err)); err != nil {
		return err
	}
	return e.concludeReport(file, written.size, summary)
}

// createFile creates the file of a flag, which only the caller can read. It keeps the file only if nothing fails.
func createFile(name, flag string) (w io.Writer, finish func(error) error, err error) {
	const onlyOwner = 0o600
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, onlyOwner)
	if errors.Is(err, os.ErrExist) {
		return nil, nil, fail(exitUnexpected, "Name another file with "+flag+".", "file %s exists, and is not overwritten", name)
	}
	if err != nil {
		return nil, nil, fail(exitUnexpected, "Name another file with "+flag+".", "%w", err)
	}
	return file, func(failed error) error {
		err := file.Close()
		if failed != nil || err != nil {
			err = errors.Join(err, os.Remove(name))
		}
		return err
	}, nil
}

// counted counts what is written.
type counted struct {
	io.Writer
	size int64
}

// Write implements io.Writer.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.size += int64(n)
	return n, err
}

// concludeReport says what was written, apart from what was written.
func (e *environment) concludeReport(file string, size int64, summary report.Summary) error {
	const kibi = 1 << 10
	out := e.Out
	if file == "-" {
		out, file = e.ErrOut, "the report"
	}
	missing := ""
	if summary.Missing > 0 {
		missing = " Its missing.txt names what it lacks."
	}
	servers := "1 server"
	if summary.Servers != 1 {
		servers = fmt.Sprintf("%d servers", summary.Servers)
	}
	_, err := fmt.Fprintf(out, "Wrote %s: %s, %d files, %d KiB.%s Read it before you share it.\n", file, servers, summary.Files, (size+kibi-1)/kibi, missing)
	return err
}

// reportWatcher tells people how it goes, and everyone what is missing.
func (e *environment) reportWatcher() report.Watcher {
	isTerminal := table.ScreenOf(e.ErrOut).IsTerminal
	return report.Watcher{
		Begin: func(server types.NamespacedName, number, of int) {
			if isTerminal {
				_, _ = fmt.Fprintf(e.ErrOut, "%d of %d: %s\n", number, of, server)
			}
		},
		Missing: func(line string) { _, _ = fmt.Fprintf(e.ErrOut, "missing: %s\n", line) },
	}
}

// reportSource finds the servers of a report, and where it reads.
func (e *environment) reportSource(ctx context.Context, names []string) ([]types.NamespacedName, report.Source, error) {
	none := report.Source{}
	api, err := e.client()
	if err != nil {
		return nil, none, err
	}
	servers, err := e.serverNames(ctx, api, names)
	if err != nil {
		return nil, none, err
	}
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, none, err
	}
	config.QPS = -1 // as for all commands
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, none, fmt.Errorf("create client: %w", err)
	}
	forwarding := &forwarding{environment: e, api: api, config: config, denied: map[string]error{}}
	return servers, report.Source{
		API: api,
		Version: func() (string, error) {
			found, err := kube.Discovery().ServerVersion()
			if err != nil {
				return "", err
			}
			return found.GitVersion, nil
		},
		OpenLog: func(ctx context.Context, log report.Log) (io.ReadCloser, error) {
			return kube.CoreV1().Pods(log.Pod.Namespace).GetLogs(log.Pod.Name, &corev1.PodLogOptions{
				Container: log.Container, Previous: log.Previous, TailLines: new(int64(report.LogLines)), LimitBytes: new(int64(report.LogBytes)),
			}).Stream(ctx)
		},
		OpenMetrics: forwarding.open,
	}, nil
}

// serverNames are the servers that a report is about. Of all servers, only the names are read.
func (e *environment) serverNames(ctx context.Context, api client.Client, names []string) ([]types.NamespacedName, error) {
	var found []types.NamespacedName
	for _, name := range names {
		servers, err := e.servers(ctx, api, []string{name})
		if err != nil {
			return nil, err
		}
		found = append(found, client.ObjectKeyFromObject(&servers[0]))
	}
	if len(names) > 0 {
		return found, nil
	}
	namespace, err := e.namespace()
	if err != nil {
		return nil, err
	}
	return fleet.ServerKeys(ctx, api, namespace)
}

// forwarding reads metrics of pods. Where the caller may not connect to pods, it tries only once.
type forwarding struct {
	*environment
	api    client.Client
	config *rest.Config
	denied map[string]error // by namespace
}

// open opens the metrics of the adapter in a pod.
func (f *forwarding) open(ctx context.Context, name types.NamespacedName) (io.ReadCloser, error) {
	if err := f.denied[name.Namespace]; err != nil {
		return nil, err
	}
	pod, err := link.Open(ctx, f.config, name)
	if err != nil {
		if missing := f.missingRight(ctx, f.api, name.Namespace, err); explain(missing).code == exitCredentials {
			f.denied[name.Namespace] = apierrors.NewForbidden(corev1.Resource("pods/portforward"), name.Name, missing)
			return nil, f.denied[name.Namespace]
		}
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1"+adapterapi.PathMetrics, nil)
	if err != nil {
		return nil, errors.Join(err, pod.Close())
	}
	response, err := pod.Client(mcpv1alpha1.AdapterAdminPort).Do(request)
	if err != nil {
		return nil, errors.Join(err, pod.Close())
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("get metrics: %s", response.Status), response.Body.Close(), pod.Close())
	}
	return &forwarded{response.Body, pod}, nil
}

// forwarded is an answer that needs a connection to a pod.
type forwarded struct {
	io.ReadCloser
	pod *link.Pod
}

// Close implements io.Closer.
func (f *forwarded) Close() error { return errors.Join(f.ReadCloser.Close(), f.pod.Close()) }
