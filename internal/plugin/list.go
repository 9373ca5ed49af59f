package plugin

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/fleet"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
	"github.com/slipway-mcp/slipway/internal/reason"
)

func (e *environment) list() *cobra.Command {
	return e.reading(&cobra.Command{
		Use:     "list",
		Short:   "List servers, with the cause and the remedy of those that are not ready",
		Args:    atMost(0),
		Example: "  kubectl mcp list -A",
		RunE: func(command *cobra.Command, _ []string) error {
			api, err := e.client()
			if err != nil {
				return err
			}
			namespace, err := e.namespace()
			if err != nil {
				return err
			}
			servers, err := fleet.Servers(command.Context(), api, namespace)
			if err != nil {
				return err
			}
			if printed, err := e.printObjects(servers); printed || err != nil {
				return err
			}
			if len(servers.Items) == 0 {
				_, err := fmt.Fprintln(e.ErrOut, e.nothingIn(namespace))
				return err
			}
			return e.printServers(servers, e.Now())
		},
	})
}

// nothingIn says that there are no servers.
func (e *environment) nothingIn(namespace string) string {
	if namespace == "" {
		return e.inOwnName("There are no MCPServers in this cluster. To make one of what you have, see kubectl mcp import --help")
	}
	return "There are no MCPServers in namespace " + namespace + ". Try -A, for all namespaces."
}

func (e *environment) printServers(servers *mcpv1alpha1.MCPServerList, now time.Time) error {
	header := []string{"NAME", "READY", "FROM", "TOOLS", "SESSIONS", "REVISIONS", "AGE"}
	if e.output == outputWide {
		header = append(header, "REPLICAS", "TRANSPORT", "AUTH", "ADAPTER", "URL")
	}
	if e.allNamespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	var rows []table.Row
	for i := range servers.Items {
		server := &servers.Items[i]
		cells := []string{
			server.Name, readyOf(server), "image " + shortImage(server.Spec.Image), toolsOf(server), numberOf(server.Status.Sessions),
			revisionsOf(server), age(server.CreationTimestamp, now),
		}
		if e.output == outputWide {
			cells = append(cells, replicasOf(server), string(server.Spec.Transport.Type), authOf(server), adapterOf(server), urlOf(server))
		}
		if e.allNamespaces {
			cells = append([]string{server.Namespace}, cells...)
		}
		problem := problemOf(server)
		rows = append(rows, table.Row{Cells: cells, Bad: problem != ""})
		if problem != "" {
			rows = append(rows, table.Row{Note: problem, Bad: true})
		}
	}
	return table.Print(e.Out, e.Screen, header, rows)
}

// readyOf is the status of Ready, or why a stopped server has none.
func readyOf(server *mcpv1alpha1.MCPServer) string {
	if ready := meta.FindStatusCondition(server.Status.Conditions, mcpv1alpha1.ConditionReady); ready != nil {
		return string(ready.Status)
	}
	if available := meta.FindStatusCondition(server.Status.Conditions, mcpv1alpha1.ConditionAvailable); available != nil {
		return available.Reason
	}
	return "Unknown"
}

// problemOf says why a server is not ready and what to do about it, or what else needs the user; empty
// if nothing does.
func problemOf(server *mcpv1alpha1.MCPServer) string {
	if ready := meta.FindStatusCondition(server.Status.Conditions, mcpv1alpha1.ConditionReady); ready != nil && ready.Status == metav1.ConditionTrue {
		if what, advice := reason.Split("", reason.Crashes(ready.Message)); what != "" {
			return strings.TrimSpace(what + ". " + advice)
		}
	}
	for _, condition := range []string{mcpv1alpha1.ConditionReady, mcpv1alpha1.ConditionStalled} {
		found := meta.FindStatusCondition(server.Status.Conditions, condition)
		isBad := metav1.ConditionFalse
		if condition == mcpv1alpha1.ConditionStalled {
			isBad = metav1.ConditionTrue
		}
		if found == nil || found.Status != isBad {
			continue
		}
		what, advice := reason.Split(found.Reason, found.Message)
		if what != "" {
			what = ": " + strings.TrimSuffix(what, ".") + "."
		}
		return strings.TrimSpace(found.Reason + what + " " + advice)
	}
	return ""
}

// shortImage is an image reference without its registry and with the beginning of its digest.
func shortImage(image string) string {
	name, digest, hasDigest := strings.Cut(image, "@")
	if i := strings.LastIndex(name, "/"); i >= 0 {
		name = name[i+1:]
	}
	if !hasDigest {
		return name
	}
	algorithm, hex, _ := strings.Cut(digest, ":")
	return name + "@" + algorithm + ":" + hex[:min(len(hex), 4)]
}

func toolsOf(server *mcpv1alpha1.MCPServer) string {
	if server.Status.Catalog == nil {
		return "-"
	}
	return strconv.Itoa(int(server.Status.Catalog.Counts.Tools))
}

func numberOf(number *int32) string {
	if number == nil {
		return "-"
	}
	return strconv.Itoa(int(*number))
}

// replicasOf says how many pods of all are ready, and how many end beside these.
func replicasOf(server *mcpv1alpha1.MCPServer) string {
	text := fmt.Sprintf("%d/%d", server.Status.ReadyReplicas, server.Status.Replicas)
	if draining := server.Status.Draining; draining != nil {
		text += fmt.Sprintf(" (%d draining)", draining.Replicas)
	}
	return text
}

// revisionsOf are the oldest and the newest protocol revision that clients can use.
func revisionsOf(server *mcpv1alpha1.MCPServer) string {
	all := server.Status.ProtocolVersions
	switch len(all) {
	case 0:
		return "-"
	case 1:
		return all[0]
	default:
		return all[len(all)-1] + " … " + all[0]
	}
}

// authOf says who checks the tokens of callers, and whether that is in effect.
func authOf(server *mcpv1alpha1.MCPServer) string {
	if server.Spec.Auth == nil {
		return "-"
	}
	mode := string(cmp.Or(server.Spec.Auth.Mode, mcpv1alpha1.AuthModeRequired))
	isStopped := meta.FindStatusCondition(server.Status.Conditions, mcpv1alpha1.ConditionReady) == nil
	if isStopped || meta.IsStatusConditionTrue(server.Status.Conditions, mcpv1alpha1.ConditionAccessEnforced) {
		return mode
	}
	return mode + " (not enforced)"
}

func adapterOf(server *mcpv1alpha1.MCPServer) string {
	if server.Status.Template == nil {
		return "-"
	}
	version := cmp.Or(server.Status.Template.AdapterVersion, "-")
	if server.Status.Template.Outdated {
		version += " (outdated)"
	}
	return version
}

func urlOf(server *mcpv1alpha1.MCPServer) string {
	if server.Status.Address == nil {
		return "-"
	}
	return server.Status.Address.URL
}

func age(since metav1.Time, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(since.Time))
}
