package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/plugin/link"
	"github.com/slipway-mcp/slipway/internal/plugin/sessions"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
	"github.com/slipway-mcp/slipway/internal/text"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// openSession is a session of a client with one pod of a server.
type openSession struct {
	Pod string `json:"pod"`
	adapterapi.SessionInfo
}

// name names the session among all of the cluster's namespace. Each pod counts its own sessions.
func (s *openSession) name() string { return s.Pod + "/" + s.Number }

// shortName is a name that fits in a table: the end of the pod's name, which the pods of a server do not
// share, and the number.
func (s *openSession) shortName() string {
	return s.Pod[strings.LastIndex(s.Pod, "-")+1:] + "/" + s.Number
}

func (e *environment) sessions() *cobra.Command {
	command := &cobra.Command{
		Use:   "sessions NAME",
		Short: "Show the clients that are connected to a server",
		Long: "Show the sessions that clients have open with the pods of a server. Clients of revision 2026-07-28\n" +
			"have no sessions. The list has no session ids: these are secrets of the clients.",
		Example: "  kubectl mcp sessions tickets\n  kubectl mcp sessions end tickets x2abc/12",
		Args:    exactlyOne("name a server, as in kubectl mcp sessions tickets"),
		RunE: func(command *cobra.Command, args []string) error {
			return e.showSessions(command.Context(), args[0])
		},
	}
	e.outputFlag(command, "json, yaml, name or wide")
	command.AddCommand(&cobra.Command{
		Use:   "end NAME SESSION...",
		Short: "End sessions of clients",
		Long: "End sessions of clients. A call in flight fails, and the process of the session ends. The client opens\n" +
			"another session with its next request. SESSION is what kubectl mcp sessions shows.",
		Example: "  kubectl mcp sessions end tickets x2abc/12",
		Args:    atLeast(2, "name a server and a session, as in kubectl mcp sessions end tickets x2abc/12"),
		RunE: func(command *cobra.Command, args []string) error {
			return e.endSessions(command.Context(), args[0], args[1:])
		},
	})
	return command
}

func (e *environment) showSessions(ctx context.Context, name string) error {
	if err := e.checkOutput(outputJSON, outputYAML, outputName, outputWide); err != nil {
		return err
	}
	admins, err := e.askAdmins(ctx, name)
	if err != nil {
		return err
	}
	defer admins.close()
	found := admins.list()
	var names []string
	for i := range found {
		names = append(names, found[i].name())
	}
	if printed, err := e.printValue(found, names); printed || err != nil {
		return err
	}
	if len(found) == 0 {
		_, err := fmt.Fprintf(e.ErrOut, "No client has a session with MCPServer %s. Clients of revision 2026-07-28 never have one.\n", name)
		return err
	}
	return e.printSessions(found)
}

func (e *environment) printSessions(found []openSession) error {
	header := []string{"SESSION", "CLIENT", "REVISION", "AGE", "IDLE", "REQUESTS", "IN FLIGHT"}
	if e.output == outputWide {
		header = append(header, "HELD", "POD")
	}
	var rows []table.Row
	for i := range found {
		s := &found[i]
		cells := []string{
			s.shortName(), orDash(strings.TrimSpace(s.Client + " " + s.ClientVersion)), orDash(s.Revision), seconds(s.AgeSeconds), seconds(s.IdleSeconds),
			strconv.FormatUint(s.Requests, 10), strconv.Itoa(s.InFlight),
		}
		if e.output == outputWide {
			cells = append(cells, quantity.NewQuantity(s.HeldBytes, quantity.BinarySI).String(), s.Pod)
		}
		rows = append(rows, table.Row{Cells: cells})
	}
	return table.Print(e.Out, e.Screen, header, rows)
}

func orDash(word string) string {
	if word == "" {
		return "-"
	}
	return word
}

func seconds(number float64) string {
	return duration.HumanDuration(time.Duration(number * float64(time.Second)))
}

func (e *environment) endSessions(ctx context.Context, name string, wanted []string) error {
	admins, err := e.askAdmins(ctx, name)
	if err != nil {
		return err
	}
	defer admins.close()
	found := admins.list()
	var chosen []openSession
	for _, word := range wanted { // all of them are known before one ends
		session, err := chooseSession(found, word, admins.server)
		if err != nil {
			return err
		}
		chosen = append(chosen, session)
	}
	for i := range chosen {
		if err := admins.end(ctx, &chosen[i]); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(e.Out, "session %s ended\n", chosen[i].name()); err != nil {
			return err
		}
	}
	return nil
}

// chooseSession finds the session that a user names.
func chooseSession(found []openSession, word string, server *mcpv1alpha1.MCPServer) (openSession, error) {
	var matches []openSession
	var names []string
	for i := range found {
		if word == found[i].Number || word == found[i].shortName() || word == found[i].name() {
			matches = append(matches, found[i])
			names = append(names, found[i].name())
		}
	}
	switch len(matches) {
	case 0:
		return openSession{}, fail(exitUnreachable, "See the sessions: kubectl mcp sessions "+named(server), "no client has a session %s with MCPServer %s", word, server.Name)
	case 1:
		return matches[0], nil
	default:
		return openSession{}, fail(exitUnexpected, "Name one of them: "+strings.Join(names, ", "), "several pods have a session %s", word)
	}
}

// admins are the admin ports of the pods of a server.
type admins struct {
	*environment
	server *mcpv1alpha1.MCPServer
	pods   []corev1.Pod
	of     []podAdmin // in the order of the pods
}

// podAdmin is the admin port of a pod, and the sessions there or why they are not known.
type podAdmin struct {
	*sessions.Admin
	link     *link.Pod
	sessions []adapterapi.SessionInfo
	err      error
}

// askAdmins asks all pods of a server that serve for their sessions. It needs the Secret with the key for
// sessions, and fails if no pod answers.
func (e *environment) askAdmins(ctx context.Context, name string) (*admins, error) {
	api, server, err := e.server(ctx, name)
	if err != nil {
		return nil, err
	}
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	key, err := e.sessionsKey(ctx, api, server)
	if err != nil {
		return nil, err
	}
	pods, err := e.servingPods(ctx, api, server)
	if err != nil {
		return nil, err
	}
	a := &admins{environment: e, server: server, pods: pods, of: make([]podAdmin, len(pods))}
	eachPod(pods, func(i int) { a.of[i] = e.askAdmin(ctx, api, config, &pods[i], key) })
	if answered := slices.ContainsFunc(a.of, func(p podAdmin) bool { return p.err == nil }); !answered {
		defer a.close()
		return nil, a.explain(0)
	}
	return a, nil
}

// askAdmin asks a pod for its sessions.
func (e *environment) askAdmin(ctx context.Context, api client.Client, config *rest.Config, pod *corev1.Pod, key adapterapi.SessionsKey) (p podAdmin) {
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	if p.link, p.err = e.openLink(ctx, api, config, pod); p.err != nil {
		return p
	}
	p.Admin = &sessions.Admin{Client: p.link.Client(mcpv1alpha1.AdapterAdminPort), Key: key, PodUID: string(pod.UID), Now: time.Now}
	p.sessions, p.err = p.List(ctx)
	return p
}

// sessionsKey reads the key for sessions of a server.
func (e *environment) sessionsKey(ctx context.Context, api client.Client, server *mcpv1alpha1.MCPServer) (adapterapi.SessionsKey, error) {
	name := client.ObjectKey{Namespace: server.Namespace, Name: workload.SessionsSecretName(server)}
	secret := &corev1.Secret{}
	if err := api.Get(ctx, name, secret); err != nil {
		err = fmt.Errorf("get the key for sessions: %w", err)
		switch known := explain(err); {
		case client.IgnoreNotFound(err) == nil:
			return adapterapi.SessionsKey{}, fail(exitUnreachable, "The manager creates it when it has accepted the server. See why it has not: kubectl mcp doctor "+named(server), "MCPServer %s has no Secret %s", server.Name, name.Name)
		case known.code == exitCredentials:
			return adapterapi.SessionsKey{}, fail(exitCredentials, "Ask for the right to get this Secret. It holds a key that lists and ends sessions, and opens nothing else.", "you may not get Secret %s in namespace %s", name.Name, name.Namespace)
		default:
			return adapterapi.SessionsKey{}, err
		}
	}
	if !metav1.IsControlledBy(secret, server) {
		return adapterapi.SessionsKey{}, fail(exitUnreachable, "Give one of the two another name.", "Secret %s does not belong to MCPServer %s, so it is not the key for its sessions", name.Name, server.Name)
	}
	key, err := adapterapi.ParseSessionsKey(string(secret.Data[adapterapi.SessionsKeyEntry]))
	if err != nil {
		return key, fail(exitUnexpected, "Delete the Secret. The manager creates it again.", "read Secret %s: %w", name.Name, err)
	}
	return key, nil
}

func (a *admins) close() {
	for i := range a.of {
		if a.of[i].link != nil {
			_ = a.of[i].link.Close()
		}
	}
}

// list returns the sessions of all pods that answered, and names the others on standard error.
func (a *admins) list() []openSession {
	found := []openSession{}
	for i := range a.of {
		if a.of[i].err != nil {
			failed := explain(a.explain(i))
			_, _ = fmt.Fprintln(a.ErrOut, text.Line(failed.Error()+". "+failed.next, noteBytes))
			continue
		}
		for _, info := range a.of[i].sessions {
			found = append(found, openSession{a.pods[i].Name, info})
		}
	}
	return found
}

// end ends a session.
func (a *admins) end(ctx context.Context, session *openSession) error {
	ctx, cancel := context.WithTimeout(ctx, podPatience)
	defer cancel()
	i := slices.IndexFunc(a.pods, func(pod corev1.Pod) bool { return pod.Name == session.Pod })
	if a.of[i].err = a.of[i].End(ctx, session.Number); a.of[i].err == nil || errors.Is(a.of[i].err, sessions.ErrUnknown) {
		return nil // a session that ended meanwhile has ended
	}
	return a.explain(i)
}

// explain says what a user can do about the error of a pod.
func (a *admins) explain(i int) error {
	err := a.of[i].err
	if known, ok := errors.AsType[*failure](err); ok {
		return known
	}
	code, next := exitUnreachable, "See why: kubectl mcp doctor "+named(a.server)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s", podPatience)
	case errors.Is(err, sessions.ErrKey):
		code, next = exitCredentials, "Delete Secret "+workload.SessionsSecretName(a.server)+": the manager creates it again, with the current key of the server."
	case errors.Is(err, sessions.ErrOld):
		next = "Render the pods again: kubectl mcp refresh " + named(a.server)
	}
	return fail(code, next, "ask the adapter of pod %s: %w", a.pods[i].Name, err)
}
