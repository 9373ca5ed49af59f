package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/slipway-mcp/slipway/bench/load"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// issuer makes tokens, as an identity provider would.
type issuer struct {
	signer jose.Signer
	public json.RawMessage
	shared string // the token that all clients have
}

const (
	issuerURL    = "https://login.example.com"
	authResource = "https://echo.example.com/mcp"
	authScope    = "mcp:use"
)

func newIssuer() (*issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key of tokens: %w", err)
	}
	i := new(issuer)
	pair := jose.JSONWebKey{Key: key, KeyID: "bench", Algorithm: string(jose.ES256), Use: "sig"}
	if i.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: pair}, new(jose.SignerOptions).WithType("at+jwt")); err != nil {
		return nil, fmt.Errorf("make signer of tokens: %w", err)
	}
	if i.public, err = json.Marshal(pair.Public()); err != nil {
		return nil, fmt.Errorf("encode key of tokens: %w", err)
	}
	i.shared, err = i.mint("alice")
	return i, err
}

// mint makes a token that is about as long as that of a ServiceAccount.
func (i *issuer) mint(subject string) (string, error) {
	now := time.Now()
	token, err := jwt.Signed(i.signer).Claims(map[string]any{
		"iss": issuerURL, "sub": subject, "aud": authResource, "scope": authScope, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "padding": strings.Repeat("p", 400),
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	return token, nil
}

// document allows the tools that the workloads call, by name, so that rules are looked up.
func (i *issuer) document() ([]byte, error) {
	text, err := json.Marshal(adapterapi.Access{
		Version: adapterapi.AccessVersion, Generation: 1, Server: adapterapi.AccessServer{Namespace: "bench", Name: "echo"}, Mode: adapterapi.AccessRequired,
		Resources: []string{authResource}, AuthorizationServers: []string{issuerURL}, Scopes: []string{authScope},
		Issuers: []adapterapi.AccessIssuer{{
			Name: "bench", Issuer: issuerURL, Audiences: []string{authResource}, MaxLifetimeSeconds: 7200,
			Claims: adapterapi.AccessClaims{User: "sub"}, Keys: []json.RawMessage{i.public},
		}},
		Rules: []adapterapi.AccessRule{{
			Subjects: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectGroup, Name: adapterapi.GroupAuthenticated}}, Tools: []string{"big", "burst", "count", "echo", "kill"},
		}},
		Audit: adapterapi.AccessAudit{Level: adapterapi.AuditNone, WhenFull: adapterapi.AuditDrop},
	})
	if err != nil {
		return nil, fmt.Errorf("encode access document: %w", err)
	}
	return text, nil
}

// sidecarWithAuth asks for a token with every request, and for a rule with every call.
func sidecarWithAuth(ctx context.Context, t *tools) (*running, error) {
	i, err := newIssuer()
	if err != nil {
		return nil, err
	}
	text, err := i.document()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(t.home(), adapterapi.AccessFile)
	if err := os.WriteFile(file, text, 0o644); err != nil { // systems may run as another user
		return nil, fmt.Errorf("write access document: %w", err)
	}
	r, err := sidecar("--access-file", file)(ctx, t)
	if err == nil {
		r.issuer, r.header = i, load.Bearer(i.shared)
	}
	return r, err
}

// badTokens has eight sessions at work, and so many forgers that present one token after the other.
func badTokens(forgers int) func(context.Context, *cell) (values, error) {
	return func(ctx context.Context, c *cell) (values, error) { return c.besideForgers(ctx, forgers) }
}

func (c *cell) besideForgers(ctx context.Context, forgers int) (values, error) {
	const active = 8
	sessions, err := c.openAll(ctx, active)
	if err != nil {
		return nil, err
	}
	defer closeAll(sessions)
	compared := &contrast{cell: c, sessions: sessions, timing: c.timing()}
	compared.timing.Measure = compared.timing.Measure * 3 / 2
	refused, busy := 0, time.Duration(0)
	for _, with := range []bool{false, true, true, false} {
		flood := new(flood)
		if with {
			if err := flood.begin(c.address, c.issuer.shared, forgers); err != nil {
				return nil, err
			}
		}
		begin := time.Now()
		err := compared.measure(ctx, with)
		if with {
			busy += time.Since(begin)
		}
		if failed := flood.end(); failed != nil || err != nil {
			return nil, errors.Join(err, failed)
		}
		refused += int(flood.refused.Load())
	}
	found, err := compared.values()
	if err != nil {
		return nil, err
	}
	found["change"] = max(found["p99"]-micros(time.Millisecond), 0) / found["before"]
	found["refused"] = float64(refused) / busy.Seconds()
	return found, nil
}

// flood is clients that present forged tokens, each of them new to the adapter.
type flood struct {
	over    atomic.Bool
	refused atomic.Int64
	clients sync.WaitGroup
	mu      sync.Mutex
	failed  error
}

// How many forgers there are: more than an adapter verifies at a time, and more than it makes wait.
const (
	fewForgers  = 4
	manyForgers = 256
)

func (f *flood) begin(address, good string, forgers int) error {
	for n := range forgers {
		client, err := load.Dial(address)
		if err != nil {
			f.over.Store(true)
			return errors.Join(err, f.end())
		}
		f.clients.Go(func() {
			err := f.forge(client, good, n)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.failed = errors.Join(f.failed, err, client.Close())
		})
	}
	return nil
}

// forge presents tokens until it is over. They have a good header and claims, so that it takes a
// verification to refuse them. Their signatures are 64 bytes that no key made.
func (f *flood) forge(client *load.Remote, good string, number int) error {
	signed := good[:strings.LastIndexByte(good, '.')+1]
	for n := 0; !f.over.Load(); n++ {
		signature := fmt.Sprintf("%064d%021dA", n, number) // 64 bytes in base64url
		status, err := client.Present(signed+signature, &load.Call{ID: n + 1, Tool: "echo", Arguments: []byte(`"text":"x"`)})
		switch {
		case err != nil:
			return fmt.Errorf("present forged token: %w", err)
		case status != http.StatusUnauthorized && status != http.StatusServiceUnavailable:
			return fmt.Errorf("a forged token is answered with %d", status)
		}
		f.refused.Add(1)
	}
	return nil
}

func (f *flood) end() error {
	f.over.Store(true)
	f.clients.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}
