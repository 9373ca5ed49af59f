package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
	"github.com/slipway-mcp/slipway/internal/plugin/usage"
)

// load is what a server does.
type load struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	usage.Usage
}

// topOptions are what the user wants to see.
type topOptions struct {
	watch    bool
	sortBy   string
	interval time.Duration
}

// leastInterval keeps a typing error, such as 2ms, from keeping adapters busy.
const leastInterval = 100 * time.Millisecond

func (e *environment) top() *cobra.Command {
	var options topOptions
	command := e.reading(&cobra.Command{
		Use:   "top [NAME...]",
		Short: "Show the calls, errors, latency, sessions and memory of servers, live",
		Long: "Show what servers do now, from the metrics of the adapters in all their ready pods. The command reads them twice.\n" +
			"Calls are " + strings.Join(usage.Methods(), ", ") + ". They do not include the manager's probes. ERRORS is the\n" +
			"share of calls that failed, and P99 the time within which 99 % of them ended. MEMORY is what the containers of the\n" +
			"server use, without the adapters. \"-\" means unknown: no call ended between the two reads, no pod answered, or the\n" +
			"server speaks HTTP. The adapter does not know the memory of such a server: use kubectl top pod.",
		Example: "  kubectl mcp top -A --sort-by errors\n  kubectl mcp top tickets --watch",
		RunE: func(command *cobra.Command, names []string) error {
			if err := e.checkTop(options); err != nil {
				return err
			}
			return e.showTop(command.Context(), names, options)
		},
	})
	command.Flags().BoolVarP(&options.watch, "watch", "w", false, "go on until you press Ctrl+C")
	command.Flags().StringVar(&options.sortBy, "sort-by", "", "show the highest first, by `column`: "+choice(sortings))
	command.Flags().DurationVar(&options.interval, "interval", 2*time.Second, "`time` between two looks at a pod")
	return command
}

// sortings are the columns that the user can sort by.
var sortings = []string{"calls", "errors", "p99", "sessions", "memory"}

// choice lists words as a sentence does.
func choice(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func (e *environment) checkTop(options topOptions) error {
	if options.sortBy != "" && !slices.Contains(sortings, options.sortBy) {
		return fail(exitUnexpected, "Use "+choice(sortings)+".", "servers cannot be sorted by %q", options.sortBy)
	}
	if options.interval < leastInterval {
		return fail(exitUnexpected, "Use --interval 2s.", "the interval must be at least %s", leastInterval)
	}
	return e.checkOutput(outputJSON, outputYAML, outputName, outputWide)
}

// showTop shows what servers do, once or until ctx ends.
func (e *environment) showTop(ctx context.Context, names []string, options topOptions) error {
	m, err := e.newMeter()
	if err != nil {
		return err
	}
	defer m.close()
	done := func() {}
	if table.ScreenOf(e.ErrOut).IsTerminal {
		done = e.tellProgress(ctx, fmt.Sprintf("Looking at what servers do for %s…", options.interval))
	}
	defer done()
	if err := e.repeatTop(ctx, m, names, options, done); err != nil && (!options.watch || ctx.Err() == nil) {
		return err
	}
	return nil // Ctrl+C is how the user ends what would go on forever
}

// repeatTop shows what servers do, and again if the user watches. It calls ready before it does so.
func (e *environment) repeatTop(ctx context.Context, m *meter, names []string, options topOptions, ready func()) error {
	seen, err := m.lookAndMeasure(ctx, names)
	if err != nil {
		return err
	}
	for {
		if len(seen.pods) > 0 || options.watch {
			if err := await(ctx, options.interval); err != nil {
				return err
			}
		}
		if options.watch {
			seen, err = m.lookAndMeasure(ctx, names)
		} else {
			err = m.measure(ctx, seen.pods, false)
		}
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
		ready()
		if err := e.printTop(m, seen, options); err != nil || !options.watch {
			return cmp.Or(err, m.checkAnswered(seen.pods))
		}
	}
}

// lookAndMeasure finds servers and asks all their pods.
func (m *meter) lookAndMeasure(ctx context.Context, names []string) (sight, error) {
	seen, err := m.look(ctx, names)
	if err == nil {
		err = m.measure(ctx, seen.pods, true)
	}
	return seen, err
}

// checkAnswered fails if no pod answered, although there are some.
func (m *meter) checkAnswered(pods []corev1.Pod) error {
	if len(pods) > 0 && m.answered() == 0 {
		return fail(exitUnreachable, "See what is wrong: kubectl mcp doctor", "no pod tells what it does")
	}
	return nil
}

// await waits. It fails if ctx ends meanwhile.
func await(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tellProgress says on a terminal what takes so long, and returns how to take it back.
func (e *environment) tellProgress(ctx context.Context, words string) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if await(ctx, time.Second) != nil {
			return
		}
		_, _ = fmt.Fprint(e.ErrOut, words)
		<-ctx.Done()
		_, _ = fmt.Fprint(e.ErrOut, "\r\x1b[K")
	}()
	return func() {
		cancel()
		<-ended
	}
}

// sight is which servers there are, and which of their pods serve.
type sight struct {
	servers []types.NamespacedName
	pods    []corev1.Pod
}

// look finds the servers of some names, or all, and their pods.
func (m *meter) look(ctx context.Context, names []string) (sight, error) {
	servers, err := m.named(ctx, names)
	if err != nil {
		return sight{}, err
	}
	var seen sight
	for i := range servers {
		seen.servers = append(seen.servers, client.ObjectKeyFromObject(&servers[i]))
	}
	namespace, err := m.namespace()
	if err != nil || len(servers) == 0 {
		return seen, err
	}
	var pods corev1.PodList
	if err := m.api.List(ctx, &pods, client.InNamespace(namespace), client.HasLabels{mcpv1alpha1.LabelServer}); err != nil {
		return sight{}, fmt.Errorf("list pods of MCPServers: %w", err)
	}
	for i := range pods.Items {
		if isServing(&pods.Items[i]) && slices.Contains(seen.servers, serverOf(&pods.Items[i])) {
			seen.pods = append(seen.pods, pods.Items[i])
		}
	}
	return seen, nil
}

// named are the servers of some names, each once, or all.
func (m *meter) named(ctx context.Context, names []string) ([]mcpv1alpha1.MCPServer, error) {
	if len(names) == 0 {
		return m.servers(ctx, m.api, nil)
	}
	var servers []mcpv1alpha1.MCPServer
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		server, err := m.servers(ctx, m.api, []string{name})
		if err != nil {
			return nil, err
		}
		servers = append(servers, server...)
	}
	return servers, nil
}

// serverOf is the server that a pod belongs to.
func serverOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[mcpv1alpha1.LabelServer]}
}

// loads adds the pods of each server up.
func (m *meter) loads(seen sight, sortBy string) []load {
	totals := map[types.NamespacedName]*usage.Total{}
	for _, server := range seen.servers {
		totals[server] = &usage.Total{}
	}
	for i := range seen.pods {
		pod := &seen.pods[i]
		totals[serverOf(pod)].Add(m.answers[pod.UID].before, m.answers[pod.UID].now)
	}
	loads := make([]load, 0, len(totals)) // an empty list is not null in JSON
	for server, total := range totals {
		loads = append(loads, load{server.Namespace, server.Name, total.Usage()})
	}
	slices.SortFunc(loads, func(a, b load) int {
		return cmp.Or(highestFirst(columnOf(a.Usage, sortBy), columnOf(b.Usage, sortBy)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return loads
}

func columnOf(u usage.Usage, sortBy string) *float64 {
	return map[string]*float64{
		"calls": u.CallsPerSecond, "errors": u.ErrorRatio, "p99": u.P99Seconds, "sessions": u.Sessions, "memory": u.MemoryBytes,
	}[sortBy]
}

// highestFirst compares numbers. What is not known comes last.
func highestFirst(a, b *float64) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	default:
		return cmp.Compare(*b, *a)
	}
}

// printTop prints what servers do, and names the pods that did not answer.
func (e *environment) printTop(m *meter, seen sight, options topOptions) error {
	loads := m.loads(seen, options.sortBy)
	if options.watch && e.Screen.IsTerminal && (e.output == outputTable || e.output == outputWide) {
		if _, err := fmt.Fprint(e.Out, "\x1b[H\x1b[2J"); err != nil {
			return err
		}
	}
	if err := e.printLoads(loads); err != nil {
		return err
	}
	for _, note := range m.notes(seen.pods) {
		if _, err := fmt.Fprintln(e.ErrOut, note); err != nil {
			return err
		}
	}
	return nil
}

func (e *environment) printLoads(loads []load) error {
	names := make([]string, len(loads))
	for i := range loads {
		names[i] = "mcpserver.mcp.slipway.dev/" + loads[i].Name
	}
	if printed, err := e.printValue(map[string]any{"items": loads}, names); printed || err != nil {
		return err
	}
	if len(loads) == 0 {
		namespace, err := e.namespace()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(e.ErrOut, e.nothingIn(namespace))
		return err
	}
	header := []string{"NAME", "PODS", "CALLS/S", "ERRORS", "P99", "SESSIONS", "MEMORY"}
	if e.output == outputWide {
		header = append(header, "MEMORY-MAX", "SESSIONS-MAX", "IN-FLIGHT", "PROCESSES", "BUFFERED")
	}
	if e.allNamespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	var rows []table.Row
	for _, l := range loads {
		cells := []string{
			l.Name, fmt.Sprintf("%d/%d", l.Answered, l.Pods), shown(l.CallsPerSecond, rate), shown(l.ErrorRatio, percent), shown(l.P99Seconds, latency),
			shown(l.Sessions, whole), shown(l.MemoryBytes, size),
		}
		if e.output == outputWide {
			cells = append(cells, shown(l.MemoryMaxBytes, size), shown(l.SessionsLimit, whole), shown(l.InFlight, whole), shown(l.Processes, whole), shown(l.BufferedBytes, size))
		}
		if e.allNamespaces {
			cells = append([]string{l.Namespace}, cells...)
		}
		rows = append(rows, table.Row{Cells: cells, Bad: l.Answered < l.Pods})
	}
	return table.Print(e.Out, e.Screen, header, rows)
}

// shown is a number in a table.
func shown(value *float64, format func(float64) string) string {
	if value == nil {
		return "-"
	}
	return format(*value)
}

// whole shows numbers that no adapter has, but a pod that is none may claim, in few characters, too.
func whole(value float64) string {
	if value >= 1e7 {
		return strconv.FormatFloat(value, 'g', 3, 64)
	}
	return strconv.FormatFloat(value, 'f', 0, 64)
}

func rate(value float64) string {
	if value >= 100 {
		return whole(value)
	}
	return strconv.FormatFloat(value, 'f', 1, 64)
}

func percent(value float64) string { return rate(100*value) + "%" }

func latency(seconds float64) string {
	switch {
	case seconds < 1:
		return whole(1000*seconds) + "ms"
	case seconds < 100:
		return strconv.FormatFloat(seconds, 'f', 1, 64) + "s"
	default:
		return whole(seconds) + "s"
	}
}

func size(bytes float64) string {
	const mebi = 1 << 20
	switch {
	case bytes >= 1<<50:
		return whole(bytes)
	case bytes >= mebi:
		return strconv.FormatFloat(bytes/mebi, 'f', 1, 64) + "Mi"
	case bytes >= 1<<10:
		return whole(bytes/(1<<10)) + "Ki"
	default:
		return whole(bytes)
	}
}
