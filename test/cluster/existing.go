package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/slipway-mcp/slipway/test/cluster/internal/kubeapi"
)

// existing is a cluster that others operate.
type existing struct {
	// kubeconfig may be a list of files, as kubectl allows, or empty.
	kubeconfig string
	out        io.Writer
}

// Up only makes sure that the cluster answers.
func (e *existing) Up(ctx context.Context) error {
	// Not by explicit path: kubectl's own rules for KUBECONFIG apply.
	api, err := kubeapi.Connect("")
	if err != nil {
		return err
	}
	version, err := api.Version(ctx)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(e.out, "cluster: Kubernetes %s answers at %s\n", version, api.Host)
	return nil
}

func (e *existing) Down(context.Context) error {
	_, _ = fmt.Fprintln(e.out, "cluster: CLUSTER=existing is not ours, it stays as it is")
	return nil
}

func (e *existing) Status(ctx context.Context) error { return printStatus(ctx, e.out, "") }

func (e *existing) Load(context.Context, ...string) error {
	return errors.New("images cannot be loaded into the nodes of an existing cluster: " +
		"push them to a registry that its nodes can reach, and use that name")
}

func (e *existing) Trust(_ context.Context, registry string) error {
	return fmt.Errorf("trust %s: the nodes of an existing cluster are not ours: "+
		"their operators have to let their container runtime pull from it without TLS", registry)
}

func (e *existing) Mirror(_ context.Context, registry, _ string) error {
	return fmt.Errorf("mirror %s: the nodes of an existing cluster are not ours: "+
		"their operators have to let their container runtime pull its images from another registry", registry)
}

func (e *existing) Kill(_ context.Context, container string) error {
	return fmt.Errorf("kill %s: the nodes of an existing cluster are not ours: "+
		"their operators have to kill a container's process there", container)
}

func (e *existing) Cut(_ context.Context, container, address string, _ bool) error {
	return fmt.Errorf("cut container %s from %s: the nodes of an existing cluster are not ours: their operators have to drop the packets there", container, address)
}

func (e *existing) Pin(_ context.Context, node, _ string) error {
	return fmt.Errorf("give the next pod of node %s an address: the nodes of an existing cluster are not ours: their operators choose the addresses of pods", node)
}

func (e *existing) Freeze(context.Context, bool) error {
	return errors.New("freeze the API server: that of an existing cluster is not ours: its operators have to stop it")
}

func (e *existing) SetNode(_ context.Context, node string, _ bool) error {
	return fmt.Errorf("node %s: the nodes of an existing cluster are not ours: its operators have to stop and start them", node)
}

func (e *existing) Kubeconfig() string { return e.kubeconfig }
