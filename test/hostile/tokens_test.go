//go:build hostile

package hostile

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

const (
	madeUpTokens = 1_000
	tokenRate    = 500
)

// makeUpTokens has clients come, each with a token of its own. Half of them open
// sessions, and half are of the era without. No client waits for the answers of others.
func makeUpTokens(a *attacker) error {
	ctx, leave := context.WithCancel(context.WithoutCancel(a))
	var clients sync.WaitGroup
	number := 0
	err := a.pace(tokenRate, madeUpTokens, func() error {
		number++
		request, err := requestWith(ctx, a.address, number)
		if err != nil {
			return err
		}
		clients.Go(func() { a.send(request) })
		return nil
	})
	leave()
	clients.Wait()
	return err
}

// requestWith is the request of a client with a token of its own.
func requestWith(ctx context.Context, address string, number int) (*http.Request, error) {
	message := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"hostile","version":"1"}}}`
	stateless := number%2 == 0
	if stateless {
		message = `{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"},"_meta":{` +
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/mcp", strings.NewReader(message))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Authorization", "Bearer "+token(number))
	if stateless {
		request.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		request.Header.Set("Mcp-Method", "tools/call")
		request.Header.Set("Mcp-Name", "echo")
	}
	return request, nil
}

// send counts what a request is answered.
func (a *attacker) send(request *http.Request) {
	answer, err := http.DefaultClient.Do(request)
	if errors.Is(err, context.Canceled) {
		a.got("left waiting")
		return
	}
	if err != nil {
		a.wrong("%v", err)
		return
	}
	defer func() { _ = answer.Body.Close() }()
	a.answered(answer, http.StatusOK)
	_, _ = io.Copy(io.Discard, answer.Body) // for the connection to be used again
}

// token is an unsigned JWT. Its subject makes a principal of its own.
func token(number int) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(fmt.Appendf(nil, `{"iss":"hostile","sub":"%d"}`, number)) + "." + encode([]byte("signed"))
}
