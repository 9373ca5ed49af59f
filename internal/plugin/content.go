package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// rejected is the code by which the SDK reports an answer that is not a message, such as status 503.
const rejected = -32005

// isAnswer says whether an error is an answer of the server, and not of what is between.
func isAnswer(err error) bool {
	answer, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && answer.Code != rejected
}

// printResult prints what a tool returned.
func (e *environment) printResult(result *mcp.CallToolResult) error {
	if printed, err := e.printValue(result, nil); printed || err != nil {
		return err
	}
	if len(result.Content) == 0 && result.StructuredContent != nil {
		encoded, err := json.MarshalIndent(result.StructuredContent, "", "  ")
		if err != nil {
			return fmt.Errorf("print the result: %w", err)
		}
		return e.show(string(encoded))
	}
	for _, content := range result.Content {
		if err := e.show(words(content)); err != nil {
			return err
		}
	}
	return nil
}

// show writes a text of a server, and ends it with a line break. On a terminal no character of it does
// anything but show. What goes elsewhere stays as it is.
func (e *environment) show(words string) error {
	if e.Screen.IsTerminal {
		words = harmless(words)
	}
	_, err := io.WriteString(e.Out, strings.TrimSuffix(words, "\n")+"\n")
	return err
}

// words are what people can read of a content.
func words(content mcp.Content) string {
	switch content := content.(type) {
	case *mcp.TextContent:
		return content.Text
	case *mcp.ImageContent:
		return fmt.Sprintf("[image, %s, %d bytes: -o json has it]", content.MIMEType, len(content.Data))
	case *mcp.AudioContent:
		return fmt.Sprintf("[audio, %s, %d bytes: -o json has it]", content.MIMEType, len(content.Data))
	case *mcp.ResourceLink:
		return fmt.Sprintf("[resource %s: %s]", content.URI, content.Name)
	case *mcp.EmbeddedResource:
		return resource(content.Resource)
	default:
		return "[content of another kind: -o json has it]"
	}
}

// resource is what people can read of a resource.
func resource(contents *mcp.ResourceContents) string {
	if contents == nil {
		return ""
	}
	if contents.Blob == nil {
		return contents.Text
	}
	return fmt.Sprintf("[%s, %s, %d bytes: -o json has it]", contents.URI, contents.MIMEType, len(contents.Blob))
}
