package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/doctor"
	"github.com/slipway-mcp/slipway/internal/plugin/fleet"
	"github.com/slipway-mcp/slipway/internal/text"
)

func (e *environment) doctor() *cobra.Command {
	var deep bool
	command := &cobra.Command{
		Use:   "doctor [NAME]",
		Short: "Find out what does not work, and what to do about it",
		Long: "Check the cluster, the manager, your rights, and one server or all. For each problem, and for what may\n" +
			"become one, print the cause and what to do. With --deep, also open a session with each server.\n" +
			"The exit code is 4 if something does not work.",
		Example: "  kubectl mcp doctor\n  kubectl mcp doctor tickets --deep",
		Args:    atMost(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := e.checkOutput(outputJSON, outputYAML); err != nil {
				return err
			}
			findings, err := e.examine(command.Context(), args, deep)
			if err != nil {
				return err
			}
			return e.printFindings(findings)
		},
	}
	e.outputFlag(command, "json or yaml")
	command.Flags().BoolVarP(&e.allNamespaces, "all-namespaces", "A", false, "look at all namespaces")
	command.Flags().BoolVar(&deep, "deep", false, "open a session with each server, and list its tools")
	return e.calling(command)
}

// examine looks at everything.
func (e *environment) examine(ctx context.Context, args []string, deep bool) ([]doctor.Finding, error) {
	api, err := e.client()
	if err != nil {
		return nil, err
	}
	servers, err := e.servers(ctx, api, args)
	if err != nil {
		return nil, err
	}
	var findings []doctor.Finding
	for _, look := range []func(context.Context, client.Client) (doctor.Finding, error){e.lookAtCluster, e.lookAtOperator, e.lookAtRights} {
		finding, err := look(ctx, api)
		if err != nil {
			return nil, err
		}
		findings = append(findings, finding)
	}
	for i := range servers {
		findings = append(findings, doctor.Server(&servers[i])...)
		if deep && meta.FindStatusCondition(servers[i].Status.Conditions, mcpv1alpha1.ConditionReady) != nil { // a stopped one has none
			findings = append(findings, e.lookDeep(ctx, api, &servers[i]))
		}
	}
	return findings, nil
}

// leastMinor is the oldest minor version of Kubernetes that Slipway supports.
const leastMinor = 34

func (e *environment) lookAtCluster(context.Context, client.Client) (doctor.Finding, error) {
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return doctor.Finding{}, err
	}
	cluster, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return doctor.Finding{}, err
	}
	found, err := cluster.ServerVersion()
	if err != nil {
		return doctor.Finding{}, fmt.Errorf("ask for the version of Kubernetes: %w", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(found.Major+" "+strings.TrimRight(found.Minor, "+"), "%d %d", &major, &minor); err == nil && major == 1 && minor < leastMinor {
		return doctor.Finding{Level: doctor.Warn, About: "cluster", Text: fmt.Sprintf("Kubernetes %s is older than 1.%d, with which Slipway is tested", found.GitVersion, leastMinor), Fix: "Upgrade the cluster."}, nil
	}
	return doctor.Finding{Level: doctor.OK, About: "cluster", Text: "Kubernetes " + found.GitVersion}, nil
}

// lookAtOperator looks at the manager, where the caller may.
func (e *environment) lookAtOperator(ctx context.Context, api client.Client) (doctor.Finding, error) {
	var managers appsv1.DeploymentList
	err := api.List(ctx, &managers, fleet.ManagerLabels())
	switch {
	case apierrors.IsForbidden(err):
		return doctor.Finding{Level: doctor.OK, About: "manager", Text: "not looked at: you may not list Deployments in all namespaces"}, nil
	case err != nil:
		return doctor.Finding{}, fmt.Errorf("list Deployments: %w", err)
	case len(managers.Items) == 0:
		return doctor.Finding{Level: doctor.Fail, About: "manager", Text: "there is no manager of Slipway in the cluster", Fix: "Install it: kubectl apply --server-side -f install.yaml"}, nil
	}
	manager := &managers.Items[0]
	about := manager.Namespace + "/" + manager.Name
	if manager.Status.ReadyReplicas == 0 {
		return doctor.Finding{
			Level: doctor.Fail, About: about, Text: "the manager is not ready, so no status changes",
			Fix: "Look at its log: kubectl -n " + manager.Namespace + " logs deployment/" + manager.Name,
		}, nil
	}
	return doctor.Finding{Level: doctor.OK, About: about, Text: "the manager is ready"}, nil
}

// lookAtRights looks at what the caller may do.
func (e *environment) lookAtRights(ctx context.Context, api client.Client) (doctor.Finding, error) {
	namespace, err := e.namespace()
	if err != nil {
		return doctor.Finding{}, err
	}
	var missing []string
	for _, right := range []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "configmaps"},
		{Verb: "list", Resource: "pods"},
		{Verb: "watch", Resource: "pods"},
		{Verb: "get", Resource: "pods", Subresource: "log"},
		{Verb: "get", Resource: "pods", Subresource: "portforward"},
		{Verb: "create", Resource: "pods", Subresource: "portforward"},
		{Verb: "patch", Group: mcpv1alpha1.SchemeGroupVersion.Group, Resource: "mcpservers"},
	} {
		right.Namespace = namespace
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right}}
		if err := api.Create(ctx, review); err != nil {
			return doctor.Finding{}, fmt.Errorf("ask for your rights: %w", err)
		}
		if !review.Status.Allowed {
			missing = append(missing, right.Verb+" "+strings.TrimSuffix(right.Resource+"/"+right.Subresource, "/"))
		}
	}
	if len(missing) > 0 {
		return doctor.Finding{Level: doctor.Warn, About: "your rights", Text: "you may not: " + strings.Join(missing, ", "), Fix: "The role edit has them all."}, nil
	}
	return doctor.Finding{Level: doctor.OK, About: "your rights", Text: "you may use every command"}, nil
}

// lookDeep opens a session with a server.
func (e *environment) lookDeep(ctx context.Context, api client.Client, server *mcpv1alpha1.MCPServer) doctor.Finding {
	about := server.Namespace + "/" + server.Name
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	session, err := e.converseDeep(ctx, api, server)
	if err != nil {
		failed := explain(err)
		level := doctor.Fail
		if isRefused(err) {
			level = doctor.Warn // the server works, for others
		}
		return doctor.Finding{Level: level, About: about, Text: failed.Error(), Fix: failed.next}
	}
	defer session.end()
	tools, err := countTools(ctx, session.ListTools)
	if err != nil {
		return doctor.Finding{Level: doctor.Fail, About: about, Text: "list tools: " + err.Error()}
	}
	found := doctor.Finding{Level: doctor.OK, About: about, Text: fmt.Sprintf("a session was opened, and lists %d tools", tools)}
	switch catalog := server.Status.Catalog; {
	case catalog == nil || int(catalog.Counts.Tools) <= tools:
	case session.tokens != nil:
		found.Text += fmt.Sprintf(" to %s; the catalog has %d", session.tokens, catalog.Counts.Tools)
	default:
		found.Text += fmt.Sprintf("; the catalog has %d, because the server offers some only to clients that it can ask something, as by sampling", catalog.Counts.Tools)
	}
	return found
}

// converseDeep opens a session with one of several servers, of which some want a token.
func (e *environment) converseDeep(ctx context.Context, api client.Client, server *mcpv1alpha1.MCPServer) (*conversation, error) {
	if server.Spec.Auth == nil {
		return e.converseWith(ctx, api, server, nil)
	}
	tokens, err := e.tokens(ctx, api, server)
	if err == nil {
		err = needToken(server, tokens)
	}
	if err != nil {
		return nil, &refusedError{err}
	}
	return e.converseWith(ctx, api, server, tokens)
}

// maxPages bounds how many pages of a list a server is asked for.
const maxPages = 1000

// countTools counts the tools on all pages of a list.
func countTools(ctx context.Context, list func(context.Context, *mcp.ListToolsParams) (*mcp.ListToolsResult, error)) (int, error) {
	count, cursor := 0, ""
	for range maxPages {
		page, err := list(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return 0, err
		}
		count += len(page.Tools)
		switch page.NextCursor {
		case "":
			return count, nil
		case cursor:
			return 0, errors.New("the list does not end: a page leads to itself")
		}
		cursor = page.NextCursor
	}
	return 0, fmt.Errorf("the list does not end: it has more than %d pages", maxPages)
}

// urgency orders findings: what does not work comes last, where the user looks first.
var urgency = map[doctor.Level]int{doctor.OK: 0, doctor.Warn: 1, doctor.Fail: 2}

func problems(number int) string {
	if number == 1 {
		return "one thing does not work"
	}
	return fmt.Sprintf("%d things do not work", number)
}

func (e *environment) printFindings(findings []doctor.Finding) error {
	failed := 0
	for _, finding := range findings {
		if finding.Level == doctor.Fail {
			failed++
		}
	}
	slices.SortStableFunc(findings, func(a, b doctor.Finding) int { return cmp.Compare(urgency[a.Level], urgency[b.Level]) })
	printed, err := e.printValue(map[string]any{"items": findings}, nil)
	if err != nil {
		return err
	}
	for _, finding := range findings {
		if printed {
			break
		}
		line := fmt.Sprintf("%-4s  %s: %s\n", finding.Level, finding.About, text.Line(finding.Text, errorBytes))
		if finding.Fix != "" {
			line += "      fix: " + text.Line(finding.Fix, errorBytes) + "\n"
		}
		if _, err := fmt.Fprint(e.Out, line); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fail(exitUnreachable, "", "%s", problems(failed))
	}
	return nil
}
