package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/manifest"
)

// newExample has everything that is required.
const newExample = "kubectl mcp new tickets --image registry.example/team/tickets:1.4 --transport stdio"

func (e *environment) create() *cobra.Command {
	var request manifest.Request
	var port, replicas int32
	command := &cobra.Command{
		ValidArgsFunction: cobra.NoFileCompletions, // the name is a new one
		Use:               "new NAME --image IMAGE --transport TRANSPORT [flags] [-- COMMAND ARGS...]",
		Short:             "Print the manifest of a new server",
		Long: "Print an MCPServer, and a Secret to fill in if there are secret variables. The command applies nothing. On a\n" +
			"terminal, it asks for what is missing. The words after -- are the command and its arguments; with --package,\n" +
			"they are only arguments. As in a pod, $(NAME) in them stands for a variable.",
		Example: "  " + newExample + " > tickets.yaml\n" +
			"  kubectl mcp new weather --image registry.example/weather:2.0 --transport streamable-http --port 3000 --secret-env API_KEY\n" +
			"  kubectl mcp new search --package npm:@acme/search@2.1.0 -- --region eu",
		RunE: func(command *cobra.Command, args []string) error {
			if err := splitArgs(&request, args, command.ArgsLenAtDash()); err != nil {
				return err
			}
			if command.Flags().Changed("port") {
				request.Port = &port
			}
			if command.Flags().Changed("replicas") {
				request.Replicas = &replicas
			}
			if given := e.flags.Namespace; given != nil {
				request.Namespace = *given
			}
			return e.printNew(command.Context(), request, e.isInteractive())
		},
	}
	flags := command.Flags()
	flags.StringVar(&request.Image, "image", "", "`image` that holds the server")
	flags.StringVar(&request.Package, "package", "", "`package` to install in place of an image: npm:NAME@VERSION or pypi:NAME@VERSION; it speaks stdio")
	flags.StringVar(&request.Transport, "transport", "", "`transport` that the server itself speaks: stdio, streamable-http or sse")
	flags.Int32Var(&port, "port", 0, "`port` that a streamable-http or sse server listens on")
	flags.Lookup("port").DefValue = "0" // there is none
	flags.StringVar(&request.Path, "path", "", "`path` of the endpoint of a streamable-http server (/mcp unless set) or of an sse server (/sse unless set)")
	flags.StringArrayVar(&request.Command, "command", nil, "`word` of the command that replaces the entrypoint of the image; may be repeated")
	flags.StringArrayVar(&request.Args, "arg", nil, "`argument` of the command, or of the entrypoint of the image; may be repeated")
	flags.StringArrayVar(&request.Env, "env", nil, "variable of the server, as `KEY=VALUE`; may be repeated")
	flags.StringArrayVar(&request.SecretEnv, "secret-env", nil, "variable from a Secret, as `KEY[=SECRET/KEY]`; without a Secret, one to fill in is printed; may be repeated")
	flags.Int32Var(&replicas, "replicas", 1, "`number` of pods")
	return command
}

// splitArgs tells the name of the server from its command. At is how many words stand before --; -1 if it is not
// there.
func splitArgs(request *manifest.Request, args []string, at int) error {
	names, words := args, []string(nil)
	if at >= 0 {
		names, words = args[:at], args[at:]
	}
	if len(names) > 1 {
		return fail(exitUnexpected, "See kubectl mcp new --help", "a server has one name, and its command stands after --, as in kubectl mcp new tickets -- node dist/index.js")
	}
	request.Name = strings.Join(names, "")
	switch {
	case len(words) == 0:
	case len(request.Command)+len(request.Args) > 0:
		return fail(exitUnexpected, "See kubectl mcp new --help", "write the command after --, or with --command and --arg, but not both")
	case request.Package != "":
		request.Args = words
	default:
		request.Command, request.Args = words[:1], words[1:]
	}
	return nil
}

// printNew prints the manifest of a server.
func (e *environment) printNew(ctx context.Context, request manifest.Request, isInteractive bool) error {
	if err := e.askMissing(ctx, &request, isInteractive); err != nil {
		return err
	}
	result, err := manifest.New(request)
	if err != nil {
		return fail(exitUnexpected, "See kubectl mcp new --help", "%w", err)
	}
	for _, remark := range result.Changed {
		e.remark("note", remark)
	}
	return manifest.Encode(e.Out, result)
}

// missingPart is something that a server must have, and the request has not.
type missingPart struct {
	flag, question string
	isMissing      func(*manifest.Request) bool
	// set takes an answer, or says why it cannot.
	set func(request *manifest.Request, answer string) (why string)
}

// requiredParts are in the order of the questions: whether there must be a port depends on the transport.
var requiredParts = []missingPart{
	{
		"NAME", "Name of the server: ",
		func(r *manifest.Request) bool { return r.Name == "" },
		func(r *manifest.Request, answer string) string {
			r.Name = answer
			return manifest.WrongName(answer)
		},
	},
	{
		"--image", "Image that holds it, such as registry.example/team/tickets:1.4: ",
		func(r *manifest.Request) bool { return r.Image == "" && r.Package == "" },
		func(r *manifest.Request, answer string) string {
			r.Image = answer
			return manifest.WrongImage(answer)
		},
	},
	{
		"--transport", "What it speaks (" + strings.Join(manifest.Transports, ", ") + "): ",
		func(r *manifest.Request) bool { return r.Transport == "" && r.Package == "" },
		func(r *manifest.Request, answer string) string {
			r.Transport = answer
			return manifest.WrongTransport(answer)
		},
	},
	{
		"--port", "Port that it listens on: ",
		func(r *manifest.Request) bool {
			listens := []string{string(mcpv1alpha1.TransportStreamableHTTP), string(mcpv1alpha1.TransportSSE)}
			return r.Port == nil && slices.Contains(listens, r.Transport)
		},
		func(r *manifest.Request, answer string) string {
			const bits = 32
			port, err := strconv.ParseInt(answer, 10, bits)
			if err != nil {
				return "it must be a number"
			}
			number := int32(port)
			r.Port = &number
			return manifest.WrongPort(port)
		},
	},
}

// askMissing asks for what is missing, or fails if no one can answer.
func (e *environment) askMissing(ctx context.Context, request *manifest.Request, isInteractive bool) error {
	var missing []string
	input := bufio.NewReader(e.In)
	for _, part := range requiredParts {
		if !part.isMissing(request) {
			continue
		}
		if !isInteractive {
			missing = append(missing, part.flag)
			continue
		}
		if err := e.askPart(ctx, input, request, part); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fail(exitUnexpected, "For example: "+newExample, "missing: %s", strings.Join(missing, ", "))
	}
	return nil
}

// askPart asks until the answer fits.
func (e *environment) askPart(ctx context.Context, input *bufio.Reader, request *manifest.Request, part missingPart) error {
	for {
		_, _ = fmt.Fprint(e.ErrOut, part.question)
		answer, err := readLine(ctx, input)
		if errors.Is(err, io.EOF) {
			return fail(exitUnexpected, "For example: "+newExample, "missing: %s", part.flag)
		}
		if err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		why := part.set(request, strings.TrimSpace(answer))
		if why == "" {
			return nil
		}
		_, _ = fmt.Fprintln(e.ErrOut, why)
	}
}
