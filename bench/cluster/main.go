// Command cluster measures how long MCPServers take from their creation to Ready and
// Verified on a real cluster, in which the manager is installed. make bench-cluster
// runs it; docs/performance.md has the results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

func main() {
	plan := flag.String("plan", "1x10,10x5,100x1", "how many servers at a time, and in how many `rounds`")
	out := flag.String("out", "dist/bench-cluster", "`directory` for results.json and report.md")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *plan, *out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-cluster:", err)
		os.Exit(1)
	}
}

// size is a number of servers, and how often that many are measured.
type size struct{ servers, rounds int }

func parsePlan(text string) (plan []size, err error) {
	for part := range strings.SplitSeq(text, ",") {
		servers, rounds, _ := strings.Cut(part, "x")
		var s size
		if s.servers, err = strconv.Atoi(servers); err == nil {
			s.rounds, err = strconv.Atoi(rounds)
		}
		if err != nil || s.servers < 1 || s.rounds < 1 {
			return nil, fmt.Errorf("-plan: %q is not SERVERSxROUNDS, such as 10x5", part)
		}
		plan = append(plan, s)
	}
	return plan, nil
}

func run(ctx context.Context, planText, out string) error {
	plan, err := parsePlan(planText)
	if err != nil {
		return err
	}
	c, err := connect()
	if err != nil {
		return err
	}
	if err := removeLeftovers(ctx, c); err != nil {
		return err
	}
	where, err := lookAround(ctx, c, plan)
	if err != nil {
		return err
	}
	image, err := loadServer(ctx)
	if err != nil {
		return err
	}
	results := &results{Started: time.Now().UTC(), Cluster: where}
	// The first is not counted: the manager may still wait to lead, and the node has
	// run neither image yet.
	if _, _, err := measureRound(ctx, c, image, 1); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	for _, s := range plan {
		for i := range s.rounds {
			lines, pods, err := measureRound(ctx, c, image, s.servers)
			if err != nil {
				return fmt.Errorf("round %d of %d servers: %w", i+1, s.servers, err)
			}
			took, err := pods.measure(ctx, c)
			if err != nil {
				return fmt.Errorf("round %d of %d bare pods: %w", i+1, s.servers, err)
			}
			round := newRound(lines, took)
			results.Rounds = append(results.Rounds, round)
			fmt.Fprintf(os.Stderr, "%4.0f s  %d servers, round %d of %d: all verified after %.2f s, %.2f times what bare pods take\n",
				time.Since(results.Started).Seconds(), s.servers, i+1, s.rounds, round.AllVerified, round.AllVerified/round.Bare)
		}
	}
	if err := results.write(out); err != nil {
		return err
	}
	fmt.Print(results.markdown())
	return nil
}

func connect() (client.WithWatch, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1 // The API server protects itself.
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), mcpv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register API types: %w", err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return c, nil
}

// removeLeftovers removes what an earlier run could not.
func removeLeftovers(ctx context.Context, c client.Client) error {
	var namespaces corev1.NamespaceList
	if err := c.List(ctx, &namespaces, client.HasLabels{ownLabel}); err != nil {
		return fmt.Errorf("list Namespaces: %w", err)
	}
	for i := range namespaces.Items {
		if err := remove(ctx, c, namespaces.Items[i].Name); err != nil {
			return err
		}
	}
	return nil
}

// lookAround describes the cluster, and makes sure that the plan fits into it.
func lookAround(ctx context.Context, c client.Client, plan []size) (surroundings, error) {
	var nodes corev1.NodeList
	var pods corev1.PodList
	if err := errors.Join(c.List(ctx, &nodes), c.List(ctx, &pods)); err != nil {
		return surroundings{}, fmt.Errorf("list Nodes and Pods: %w", err)
	}
	if len(nodes.Items) == 0 {
		return surroundings{}, errors.New("the cluster has no node")
	}
	info := nodes.Items[0].Status.NodeInfo
	where := surroundings{
		Nodes: len(nodes.Items), Kubernetes: info.KubeletVersion, Runtime: info.ContainerRuntimeVersion, Kernel: info.KernelVersion,
		PodsBefore: len(pods.Items),
	}
	for i := range nodes.Items {
		allocatable := nodes.Items[i].Status.Allocatable
		where.MaxPods += int(allocatable.Pods().Value())
		where.CPUs += int(allocatable.Cpu().Value())
	}
	for _, s := range plan {
		if s.servers > where.MaxPods-where.PodsBefore {
			return where, fmt.Errorf("%d servers need as many pods; the nodes take %d, and %d are there: change the kubelet's maxPods, or measure fewer with -plan",
				s.servers, where.MaxPods, where.PodsBefore)
		}
	}
	return where, nil
}
