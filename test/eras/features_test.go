//go:build conformance

package eras

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/test/hang"
)

// use uses a feature, as features.mjs does.
func (c *goClient) use(ctx context.Context, feature string) error {
	ctx, cancel := context.WithTimeout(ctx, hang.Guard)
	defer cancel()
	return map[string]func(context.Context) error{
		"tools": c.useTools, "resources": c.useResources, "prompts": c.usePrompts,
		"progress": c.useProgress, "cancellation": c.useCancellation,
		"list_changed": c.useListChanged, "subscription": c.useSubscription,
		"elicitation": c.useElicitation, "sampling": c.useSampling,
	}[feature](ctx)
}

func (c *goClient) useTools(ctx context.Context) error {
	names, err := c.toolNames(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(names, "echo") {
		return fmt.Errorf("tools are %q", names)
	}
	if err := c.want(ctx, "echo", map[string]any{"text": "grüß dich 🚢"}, "grüß dich 🚢"); err != nil {
		return err
	}
	if c.served, err = c.call(ctx, "revision", map[string]any{}); err != nil {
		return err
	}
	result, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "count", Arguments: map[string]any{"key": c.key, "event": "nothing"}})
	if err != nil {
		return err
	}
	if c.revision < "2025-06-18" {
		return nil // without structured output
	}
	return equal(result.StructuredContent, any(map[string]any{"number": 0.0}))
}

func (c *goClient) toolNames(ctx context.Context) (names []string, err error) {
	list, err := c.ListTools(ctx, nil)
	if err != nil {
		return nil, err
	}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}

func (c *goClient) useResources(ctx context.Context) error {
	list, err := c.ListResources(ctx, nil)
	if err != nil {
		return err
	}
	templates, err := c.ListResourceTemplates(ctx, nil)
	if err != nil {
		return err
	}
	if len(list.Resources) != 1 || len(templates.ResourceTemplates) != 1 {
		return fmt.Errorf("there are %d resources and %d templates", len(list.Resources), len(templates.ResourceTemplates))
	}
	for uri, want := range map[string]string{list.Resources[0].URI: "plain", "matrix://item/" + c.key: "item " + c.key} {
		read, err := c.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		if err != nil {
			return err
		}
		if err := equal(read.Contents[0].Text, want); err != nil {
			return err
		}
	}
	return equal(templates.ResourceTemplates[0].URITemplate, "matrix://item/{key}")
}

func (c *goClient) usePrompts(ctx context.Context) error {
	list, err := c.ListPrompts(ctx, nil)
	if err != nil {
		return err
	}
	if len(list.Prompts) != 1 {
		return fmt.Errorf("there are %d prompts", len(list.Prompts))
	}
	prompt, err := c.GetPrompt(ctx, &mcp.GetPromptParams{Name: list.Prompts[0].Name, Arguments: map[string]string{"name": "Ada"}})
	if err != nil {
		return err
	}
	return equal(prompt.Messages[0].Content, mcp.Content(&mcp.TextContent{Text: "Greet Ada."}))
}

// useProgress: the result comes only after the client has said that it saw the steps.
func (c *goClient) useProgress(ctx context.Context) error {
	params := &mcp.CallToolParams{Name: "steps", Arguments: map[string]any{"key": c.key}}
	params.SetProgressToken("token of " + c.key)
	ended := make(chan error, 1)
	go func() {
		_, err := c.CallTool(ctx, params)
		ended <- err
	}()
	var seen []string
	err := until(ctx, func() (bool, error) {
		c.note(func() { seen = slices.Clone(c.progress) })
		return len(seen) >= 3, nil
	})
	if err != nil {
		return fmt.Errorf("progress was %q: %w", seen, err)
	}
	if err := c.want(ctx, "seen", map[string]any{"key": c.key}, "so be it"); err != nil {
		return err
	}
	token := "token of " + c.key + ": "
	return errors.Join(<-ended, equal(seen, []string{token + "1/3", token + "2/3", token + "3/3"}))
}

func (c *goClient) useCancellation(ctx context.Context) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := c.call(waiting, "wait", map[string]any{"key": c.key})
		ended <- err
	}()
	if err := until(ctx, c.counted(ctx, "started")); err != nil {
		return fmt.Errorf("the call did not start: %w", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the call ended with %w", err)
	}
	if err := until(ctx, c.counted(ctx, "cancelled")); err != nil {
		return fmt.Errorf("the server did not see the cancellation: %w", err)
	}
	return c.once(ctx, "started")
}

// useListChanged: the adapter drops notifications while the client has no stream open, so the
// client repeats the change until it gets one.
func (c *goClient) useListChanged(ctx context.Context) error {
	var before int
	c.note(func() { before = c.changes })
	if err := c.provoke(ctx, "grow", func() bool { return c.changes > before }); err != nil {
		return err
	}
	names, err := c.toolNames(ctx)
	if err == nil && !slices.Contains(names, "grown-"+c.key) {
		return errors.New("the list has not changed")
	}
	return err
}

func (c *goClient) useSubscription(ctx context.Context) error {
	uri := "matrix://item/" + c.key
	if err := c.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if err := c.provoke(ctx, "touch", func() bool { return slices.Contains(c.updates, uri) }); err != nil {
		return err
	}
	if err := c.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri}); err != nil {
		return fmt.Errorf("unsubscribe: %w", err)
	}
	return nil
}

func (c *goClient) useElicitation(ctx context.Context) error {
	if err := c.want(ctx, "order", map[string]any{"key": c.key}, "ordered for Ada"); err != nil {
		return err
	}
	return c.once(ctx, "ordered")
}

func (c *goClient) useSampling(ctx context.Context) error {
	if err := c.want(ctx, "ponder", map[string]any{"key": c.key}, "the model said: answer to question of "+c.key); err != nil {
		return err
	}
	return c.once(ctx, "pondered")
}
