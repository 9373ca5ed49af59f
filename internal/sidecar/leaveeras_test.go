package sidecar

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// statelessWays are how clients without sessions leave a server that has some.
var statelessWays = []way{
	{name: "answered", leave: asStateless("echo", `"text":"well"`, func(ctx context.Context, c *client, body string) error {
		return c.expectSoon(ctx, body, `"resultType":"complete"`)
	})},
	{name: "gone soon after a call", leave: asStateless("sleep", `"ms":300`, func(ctx context.Context, c *client, body string) error {
		c.breakOff(ctx, body)
		return nil
	})},
	{name: "gone in the middle of an answer", leave: asStateless("burst", `"n":300,"size":1000`, func(ctx context.Context, c *client, body string) error {
		return c.glance(ctx, http.MethodPost, body)
	})},
	{name: "asked, and does not come back", every: 4, leave: asStateless("ask", `"text":"well?"`, func(ctx context.Context, c *client, body string) error {
		return c.expectSoon(ctx, body, `"resultType":"input_required"`)
	})},
	{name: "gone from a subscription", leave: asStateless("", "", func(ctx context.Context, c *client, _ string) error {
		c.headers["Mcp-Method"] = "subscriptions/listen"
		return c.glance(ctx, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{`+statelessMeta+`}}}`)
	})},
	{name: "its process exits", kills: true, leave: asStateless("exit", `"n":3`, func(ctx context.Context, c *client, body string) error {
		return c.expectSoon(ctx, body, deathNotice)
	})},
}

const statelessMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`

// asStateless is a client without a session that calls a tool.
func asStateless(tool, arguments string, leave func(ctx context.Context, c *client, body string) error) func(context.Context, string) error {
	return func(ctx context.Context, url string) error {
		c := &client{url: url, http: &http.Client{Transport: &http.Transport{}}, headers: map[string]string{
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
		}}
		defer c.http.CloseIdleConnections()
		return leave(ctx, c, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{%s},"_meta":{"progressToken":1,%s}}}`, tool, arguments, statelessMeta))
	}
}

// expectSoon is expect for a server that may be busy, or that another client may have crashed.
func (c *client) expectSoon(ctx context.Context, body, want string) error {
	for {
		err := c.expect(ctx, body, want)
		if err == nil || !strings.Contains(err.Error(), `-32603`) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// translatedWays are how clients leave sessions that the server knows nothing of.
var translatedWays = []way{
	{name: "deleted", leave: with(func(ctx context.Context, c *client) error { return c.delete(ctx) })},
	{name: "forgotten", leave: with(func(context.Context, *client) error { return nil })},
	{name: "initialize given up", leave: giveUp},
	{name: "deleted in the middle of a call", leave: with(func(ctx context.Context, c *client) error {
		c.breakOff(ctx, call(1, "wait", ""))
		return c.delete(ctx)
	})},
	{name: "gone in the middle of a call", leave: with(func(ctx context.Context, c *client) error {
		return c.glance(ctx, http.MethodPost, call(1, "wait", ""))
	})},
	{name: "gone from an open stream", leave: with(func(ctx context.Context, c *client) error {
		return c.glance(ctx, http.MethodGet, "")
	})},
	{name: "connection of 2024-11-05 closed", leave: closeLegacy},
}
