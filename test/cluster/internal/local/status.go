package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/slipway-mcp/slipway/test/cluster/internal/kubeapi"
)

// Status prints how every part of the cluster is, and returns an error when one
// is not well.
func (c *Cluster) Status(ctx context.Context) error {
	if _, err := os.Stat(c.path("run")); err != nil {
		return fmt.Errorf("there is no cluster in %s", c.Dir)
	}
	dead, err := c.printComponents()
	if err != nil {
		return err
	}
	recorded, err := c.readSnapshot()
	if err != nil {
		return err
	}
	if recorded != nil {
		c.network = recorded.Network
	}
	healthy := c.printChecks(ctx)
	if dead > 0 {
		c.progress.printf("Nothing restarts a component that has died. To restart it, bring the cluster up again.")
	}
	if dead > 0 || !healthy {
		return errors.New("the cluster is not healthy")
	}
	return nil
}

// printComponents prints a table and returns how many components do not run.
func (c *Cluster) printComponents() (dead int, err error) {
	table := tabwriter.NewWriter(c.progress.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "COMPONENT\tPID\tSTATE\tLOG")
	for _, name := range componentNames {
		recorded, err := c.record(name)
		if err != nil {
			return dead, err
		}
		state := "alive"
		switch {
		case recorded.PID == 0:
			state = "never started"
			dead++
		case !recorded.Alive():
			state = "dead"
			dead++
		}
		_, _ = fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", name, recorded.PID, state, c.log(name))
	}
	if err := table.Flush(); err != nil {
		return dead, fmt.Errorf("print status: %w", err)
	}
	return dead, nil
}

// printChecks prints what the parts say of themselves, and whether all are well.
func (c *Cluster) printChecks(ctx context.Context) (healthy bool) {
	healthy = true
	for _, check := range []struct {
		name string
		run  func(context.Context, *kubeapi.Client) error
	}{
		{"API server", func(ctx context.Context, api *kubeapi.Client) error { return api.Ready(ctx) }},
		{"node " + NodeName, func(ctx context.Context, api *kubeapi.Client) error {
			return api.NodeReady(ctx, NodeName, time.Time{})
		}},
		{"CoreDNS", func(ctx context.Context, _ *kubeapi.Client) error { return c.dnsReady(ctx) }},
	} {
		state := "ready"
		api, err := kubeapi.Connect(c.Kubeconfig())
		if err == nil {
			err = check.run(ctx, api)
		}
		if err != nil {
			state = err.Error()
			healthy = false
		}
		c.progress.printf("%s: %s", check.name, state)
	}
	return healthy
}
