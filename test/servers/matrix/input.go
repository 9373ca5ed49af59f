package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// answerKey is what questions are called in results that ask for input.
const answerKey = "answer"

// order asks for a name, with a request of its own where the revision has that, else
// by its result, and then does something that must be done only once.
func (s server) order(ctx context.Context, request *mcp.CallToolRequest, in mine) (*mcp.CallToolResult, any, error) {
	question := &mcp.ElicitParams{Message: "Who orders?", RequestedSchema: json.RawMessage(
		`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)}
	answer, ask, err := s.elicit(ctx, request, question)
	if ask != nil || err != nil {
		return ask, nil, err
	}
	if answer.Action != "accept" {
		return nil, nil, fmt.Errorf("no order: %s", answer.Action)
	}
	return text("ordered for %v", answer.Content["name"]), nil, s.events.add(in.Key, "ordered")
}

func (s server) elicit(ctx context.Context, request *mcp.CallToolRequest, question *mcp.ElicitParams) (answer *mcp.ElicitResult, ask *mcp.CallToolResult, err error) {
	if request.ProtocolVersion() < modernVersion {
		answer, err = request.Session.Elicit(ctx, question)
		return answer, nil, err
	}
	if given, ok := request.Params.InputResponses[answerKey].(*mcp.ElicitResult); ok {
		return given, nil, nil
	}
	if caps := request.ClientCapabilities(); caps == nil || caps.Elicitation == nil {
		return nil, nil, missing("elicitation")
	}
	return nil, &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{answerKey: question}}, nil
}

// ponder asks the client's model in the same two ways.
func (s server) ponder(ctx context.Context, request *mcp.CallToolRequest, in mine) (*mcp.CallToolResult, any, error) {
	question := &mcp.CreateMessageParams{MaxTokens: 10, Messages: []*mcp.SamplingMessage{
		{Role: "user", Content: &mcp.TextContent{Text: "question of " + in.Key}},
	}}
	content, ask, err := s.sample(ctx, request, question)
	if ask != nil || err != nil {
		return ask, nil, err
	}
	said, ok := content.(*mcp.TextContent)
	if !ok {
		return nil, nil, fmt.Errorf("the model said %T", content)
	}
	return text("the model said: %s", said.Text), nil, s.events.add(in.Key, "pondered")
}

func (s server) sample(ctx context.Context, request *mcp.CallToolRequest, question *mcp.CreateMessageParams) (content mcp.Content, ask *mcp.CallToolResult, err error) {
	if request.ProtocolVersion() < modernVersion {
		answer, err := request.Session.CreateMessage(ctx, question)
		if err != nil {
			return nil, nil, err
		}
		return answer.Content, nil, nil
	}
	if given, ok := request.Params.InputResponses[answerKey].(*mcp.CreateMessageWithToolsResult); ok && len(given.Content) == 1 {
		return given.Content[0], nil, nil
	}
	if caps := request.ClientCapabilities(); caps == nil || caps.Sampling == nil {
		return nil, nil, missing("sampling")
	}
	return nil, &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{answerKey: question}}, nil
}

// missing is L-26: the client did not declare what the call needs. It is written out,
// because the SDK's type always has roots.
func missing(name string) error {
	return &jsonrpc.Error{
		Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the client has no " + name,
		Data: json.RawMessage(`{"requiredCapabilities":{"` + name + `":{}}}`),
	}
}
