package plugin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/follow"
	"github.com/slipway-mcp/slipway/internal/text"
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
		Long: "Show what the processes of a server write to standard error in all of its pods. If a process serves\n" +
			"one session, the adapter puts the number of the session in front of its lines. With -f, the command\n" +
			"also shows the logs of pods that start later, and of containers that restart.",
		Example: "  kubectl mcp logs tickets -f\n  kubectl mcp logs tickets --session 12",
		Args:    exactlyOne("name a server, as in kubectl mcp logs tickets"),
		RunE: func(command *cobra.Command, args []string) error {
			return e.showLogs(command.Context(), args[0], options)
		},
	}
	command.Flags().BoolVarP(&options.follow, "follow", "f", false, "go on until you press Ctrl+C, also with pods that start later")
	command.Flags().BoolVar(&options.adapter, "adapter", false, "show what the adapter logs instead")
	command.Flags().Int64Var(&options.session, "session", 0, "show only the lines of the session with this `number`")
	command.Flags().Int64Var(&options.tail, "tail", -1, "show only so many `lines` of each pod; -1 is all")
	return command
}

func (e *environment) showLogs(ctx context.Context, name string, options logOptions) error {
	_, server, err := e.server(ctx, name)
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
	l := &logs{environment: e, pods: kube.CoreV1().Pods(server.Namespace), server: name, options: options, seen: map[string]bool{}}
	if options.follow {
		following := &follow.Logs{Source: l, Container: l.container(), Read: l.show, Note: l.note}
		err = following.Run(ctx)
	} else {
		err = l.showAll(ctx)
	}
	if err == nil && len(l.seen) == 0 && ctx.Err() == nil {
		return fail(exitUnreachable, problemOf(server), "MCPServer %s has no pods", name)
	}
	return err
}

// logs are those of the pods of a server.
type logs struct {
	*environment
	pods    typedcorev1.PodInterface
	server  string
	options logOptions

	output sync.Mutex      // one line at a time
	seen   map[string]bool // pods, by name
}

// List implements follow.Source.
func (l *logs) List(ctx context.Context) (*corev1.PodList, error) {
	found, err := l.pods.List(ctx, metav1.ListOptions{LabelSelector: l.selector()})
	if err != nil {
		return nil, fmt.Errorf("list pods of MCPServer %s: %w", l.server, err)
	}
	for i := range found.Items {
		l.see(&found.Items[i])
	}
	return found, nil
}

// Watch implements follow.Source.
func (l *logs) Watch(ctx context.Context, resourceVersion string) (watch.Interface, error) {
	return l.pods.Watch(ctx, metav1.ListOptions{LabelSelector: l.selector(), ResourceVersion: resourceVersion})
}

func (l *logs) selector() string { return mcpv1alpha1.LabelServer + "=" + l.server }

func (l *logs) container() string {
	if l.options.adapter {
		return mcpv1alpha1.ContainerAdapter
	}
	return mcpv1alpha1.ContainerServer
}

// see keeps in mind that lines may come from this pod, too.
func (l *logs) see(pod *corev1.Pod) {
	l.output.Lock()
	defer l.output.Unlock()
	l.seen[pod.Name] = true
}

func (l *logs) note(words string) {
	l.output.Lock()
	defer l.output.Unlock()
	_, _ = fmt.Fprintln(l.ErrOut, text.Line(words, errorBytes))
}

// showAll shows what the logs of all pods have now.
func (l *logs) showAll(ctx context.Context) error {
	found, err := l.List(ctx)
	if err != nil {
		return err
	}
	problems := make([]error, len(found.Items))
	var reading sync.WaitGroup
	for i := range found.Items {
		reading.Go(func() { problems[i] = l.show(ctx, &found.Items[i], &follow.Place{}) })
	}
	reading.Wait()
	return errors.Join(problems...)
}

// show shows the log of one pod from a place on. With -f, the lines come with their times: they tell what was
// shown before the log broke off, by the clock of the node.
func (l *logs) show(ctx context.Context, pod *corev1.Pod, place *follow.Place) error {
	l.see(pod)
	asked := &corev1.PodLogOptions{Container: l.container(), Follow: l.options.follow, Timestamps: l.options.follow}
	switch {
	case !place.Last.IsZero():
		asked.SinceTime = new(metav1.NewTime(place.Last)) // the second of it
	case l.options.tail >= 0 && !place.IsLate:
		asked.TailLines = &l.options.tail
	}
	stream, err := l.pods.GetLogs(pod.Name, asked).Stream(ctx)
	if err != nil {
		return fmt.Errorf("read the log of pod %s: %w", pod.Name, err)
	}
	defer func() { _ = stream.Close() }()
	if err := l.showLines(pod, stream, place); err != nil && ctx.Err() == nil {
		return fmt.Errorf("read the log of pod %s: %w", pod.Name, err)
	}
	return nil
}

// pieceBytes bounds what is kept of a line: a server may write without ever ending one. The rest of a longer
// line is shown as lines of its own.
const pieceBytes = 64 << 10

// showLines shows the lines of a log behind a place until the log ends.
func (l *logs) showLines(pod *corev1.Pod, stream io.Reader, place *follow.Place) error {
	lines := bufio.NewReaderSize(stream, pieceBytes)
	p := &pieces{logs: l, pod: pod, place: place, begin: place.Last}
	for {
		piece, err := lines.ReadSlice('\n')
		if err := p.show(piece, err == nil); err != nil {
			return err
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// pieces are those of the lines of a log.
type pieces struct {
	*logs
	pod   *corev1.Pod
	place *follow.Place
	begin time.Time // lines up to it were shown before

	// Of the line that the next piece belongs to:
	isBegun, isWanted bool
	written           time.Time
}

// show shows a piece of a line, unless the user wants the lines of another session.
func (p *pieces) show(piece []byte, isEnd bool) error {
	isBreak := p.isBegun && string(piece) == "\n" // the rest of the line is shown already
	if !p.isBegun {
		p.written, piece = p.stamp(piece)
		isNew := p.written.IsZero() || p.written.After(p.begin)
		isOfSession := p.options.session == 0 || bytes.HasPrefix(piece, fmt.Appendf(nil, "[%d] ", p.options.session))
		p.isWanted = isNew && isOfSession
	}
	p.isBegun = !isEnd
	if isEnd && p.written.After(p.place.Last) {
		p.place.Last = p.written
	}
	if !p.isWanted || isBreak || len(piece) == 0 {
		return nil
	}
	return p.line(p.pod, string(piece))
}

// stamp splits the time from a line that has one.
func (l *logs) stamp(line []byte) (written time.Time, rest []byte) {
	if !l.options.follow {
		return time.Time{}, line
	}
	stamp, rest, _ := bytes.Cut(line, []byte(" "))
	written, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return time.Time{}, line // such as an error of the kubelet
	}
	return written, rest
}

// line shows one line, with the name of its pod if there are several.
func (l *logs) line(pod *corev1.Pod, line string) error {
	l.output.Lock()
	defer l.output.Unlock()
	if len(l.seen) > 1 {
		line = pod.Name + " " + line
	}
	return l.environment.show(line)
}
