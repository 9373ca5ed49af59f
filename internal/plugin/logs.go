package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// logOptions are what the user wants to see of logs.
type logOptions struct {
	follow, adapter bool
	session, tail   int64
}

func (e *environment) logs() *cobra.Command {
	var options logOptions
	command := &cobra.Command{
		Use:   "logs NAME",
		Short: "Show what the processes of a server write to standard error",
		Long: "Show what the processes of a server write to standard error, of all its pods. The adapter puts the\n" +
			"number of the session in front of each line of a process that serves one.",
		Example: "  kubectl mcp logs tickets -f\n  kubectl mcp logs tickets --session 12",
		Args:    exactly(1, "name a server, as in kubectl mcp logs tickets"),
		RunE: func(command *cobra.Command, args []string) error {
			return e.showLogs(command.Context(), args[0], options)
		},
	}
	command.Flags().BoolVarP(&options.follow, "follow", "f", false, "go on until you press Ctrl+C")
	command.Flags().BoolVar(&options.adapter, "adapter", false, "show what the adapter logs instead")
	command.Flags().Int64Var(&options.session, "session", 0, "show only the lines of the session with this `number`")
	command.Flags().Int64Var(&options.tail, "tail", -1, "show only so many `lines` of each pod; -1 is all")
	return command
}

func (e *environment) showLogs(ctx context.Context, name string, options logOptions) error {
	api, server, err := e.server(ctx, name)
	if err != nil {
		return err
	}
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(server.Namespace), client.MatchingLabels{mcpv1alpha1.LabelServer: name}); err != nil {
		return fmt.Errorf("list pods of MCPServer %s: %w", name, err)
	}
	if len(pods.Items) == 0 {
		return fail(exitUnreachable, problemOf(server), "MCPServer %s has no pods", name)
	}
	var output sync.Mutex // one line at a time
	problems := make([]error, len(pods.Items))
	var reading sync.WaitGroup
	for i := range pods.Items {
		prefix := ""
		if len(pods.Items) > 1 {
			prefix = pods.Items[i].Name + " "
		}
		reading.Go(func() {
			problems[i] = e.showLog(ctx, kube, &pods.Items[i], prefix, options, &output)
		})
	}
	reading.Wait()
	return errors.Join(problems...)
}

// showLog shows the log of one pod.
func (e *environment) showLog(ctx context.Context, kube kubernetes.Interface, pod *corev1.Pod, prefix string, options logOptions, output *sync.Mutex) error {
	asked := &corev1.PodLogOptions{Container: mcpv1alpha1.ContainerServer, Follow: options.follow}
	if options.adapter {
		asked.Container = mcpv1alpha1.ContainerAdapter
	}
	if options.tail >= 0 {
		asked.TailLines = &options.tail
	}
	stream, err := kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, asked).Stream(ctx)
	if err != nil {
		return fmt.Errorf("read the log of pod %s: %w", pod.Name, err)
	}
	defer func() { _ = stream.Close() }()
	wanted := fmt.Sprintf("[%d] ", options.session)
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadString('\n')
		if line != "" && (options.session == 0 || strings.HasPrefix(line, wanted)) {
			output.Lock()
			err = errors.Join(e.show(prefix+line), err)
			output.Unlock()
		}
		switch {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read the log of pod %s: %w", pod.Name, err)
		}
	}
}
