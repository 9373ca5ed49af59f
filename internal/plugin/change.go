package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

func (e *environment) refresh() *cobra.Command {
	return e.changing("refresh", "Resolve the image, render the pods and verify them again",
		"The manager replaces pods only if it renders them differently now.", "refreshed", func() any {
			return map[string]any{"metadata": map[string]any{"annotations": map[string]string{
				mcpv1alpha1.AnnotationRefresh: time.Now().UTC().Format(time.RFC3339Nano),
			}}}
		})
}

func (e *environment) suspend() *cobra.Command {
	return e.changing("suspend", "Stop all pods of servers and keep everything else", "", "suspended", func() any {
		return map[string]any{"spec": map[string]any{"suspend": true}}
	})
}

func (e *environment) resume() *cobra.Command {
	return e.changing("resume", "Start servers again that were suspended", "", "resumed", func() any {
		return map[string]any{"spec": map[string]any{"suspend": nil}}
	})
}

// changing is a command that patches the servers that it is given.
func (e *environment) changing(verb, short, long, done string, patch func() any) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME...", Short: short, Long: short + ".\n" + long,
		Args: atLeast(1, "name at least one server, as in kubectl mcp "+verb+" tickets"),
		RunE: func(command *cobra.Command, names []string) error {
			api, err := e.client()
			if err != nil {
				return err
			}
			namespace, err := e.namespace()
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := e.patch(command.Context(), api, client.ObjectKey{Namespace: namespace, Name: name}, patch()); err != nil {
					return err
				}
				if _, err := fmt.Fprintf(e.Out, "mcpserver.mcp.slipway.dev/%s %s\n", name, done); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (e *environment) patch(ctx context.Context, api client.Client, key client.ObjectKey, change any) error {
	encoded, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode the change of MCPServer %s: %w", key, err)
	}
	server := &mcpv1alpha1.MCPServer{}
	server.Namespace, server.Name = key.Namespace, key.Name
	if err := api.Patch(ctx, server, client.RawPatch(types.MergePatchType, encoded), client.FieldOwner("kubectl-mcp")); err != nil {
		return fmt.Errorf("change MCPServer %s: %w", key, err)
	}
	return nil
}
