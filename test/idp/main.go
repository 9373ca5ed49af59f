// Command idp is an identity provider for tests: dex, with its data in memory. When it serves, it prints the
// URL of its issuer on standard output.
//
// Dex ignores the parameter resource, and its tokens have no scope. A token has the audience URL if the
// configuration has a client with the ID URL, whose trustedPeers name the client that asks for the scope
// audience:server:client_id:URL.
package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/server/authflow"
	"github.com/dexidp/dex/server/connectors"
	"github.com/dexidp/dex/server/signer"
	"github.com/dexidp/dex/server/tokens"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"golang.org/x/crypto/bcrypt"
)

var (
	listen      = flag.String("listen", "127.0.0.1:0", "the address to serve at")
	issuer      = flag.String("issuer", "", "the URL of the issuer, as others reach it; by default that of the address")
	pair        = flag.String("pair", "", "a directory with the certificate to serve with and its key, tls.crt and tls.key; by default the certificate signs itself")
	certificate = flag.String("certificate", "", "the file to write a certificate to that signs itself")
	config      = flag.String("config", "", `a JSON file: {"clients": [clients of dex], "users": [{"email", "password", "groups"}]}`)
	rotate      = flag.Duration("rotate", 6*time.Hour, "how long a key signs tokens")
	lifetime    = flag.Duration("lifetime", 10*time.Minute, "how long a token is valid, and its key is published")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "idp:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	*issuer = cmp.Or(*issuer, "https://"+listener.Addr().String())
	shown, err := identity(*issuer)
	if err != nil {
		return err
	}
	provider, err := dex(ctx)
	if err != nil {
		return err
	}
	serving := &http.Server{Handler: provider, TLSConfig: &tls.Config{Certificates: []tls.Certificate{shown}}, ReadHeaderTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = serving.Close() })()
	fmt.Println(*issuer) // the kernel takes connections already
	if err := serving.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func dex(ctx context.Context) (*server.Server, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	clients, passwords, err := known()
	if err != nil {
		return nil, err
	}
	stored := memory.New(log)
	stored = storage.WithStaticClients(stored, clients)
	stored = storage.WithStaticPasswords(stored, passwords, log)
	stored = storage.WithStaticConnectors(stored, []storage.Connector{{ID: connectors.LocalConnector, Type: connectors.LocalConnector, Name: "Password"}})
	signing, err := (&signer.LocalConfig{KeysRotationPeriod: rotate.String()}).Open(ctx, stored, *lifetime, time.Now, log)
	if err != nil {
		return nil, fmt.Errorf("open signer: %w", err)
	}
	refresh, err := tokens.NewRefreshTokenPolicy(log, true, "", "", "")
	if err != nil {
		return nil, fmt.Errorf("set how to refresh tokens: %w", err)
	}
	provider, err := server.NewServer(ctx, server.Config{
		Issuer: *issuer, Storage: stored, Signer: signing, Logger: log, RefreshTokenPolicy: refresh, PasswordConnector: connectors.LocalConnector,
		IDTokensValidFor: *lifetime, SkipApprovalScreen: true, PKCE: authflow.PKCEConfig{CodeChallengeMethodsSupported: []string{"S256"}},
	})
	if err != nil {
		return nil, fmt.Errorf("make server: %w", err)
	}
	go rotateInTime(ctx, signing)
	return provider, nil
}

// rotateInTime looks for keys that are too old more often than dex, which does so every 30 seconds.
func rotateInTime(ctx context.Context, signing signer.Signer) {
	over, cancel := context.WithCancel(ctx)
	cancel()
	for tick := time.Tick(max(*rotate/4, time.Millisecond)); ; {
		select {
		case <-tick:
			signing.Start(over) // looks once, because its context is over
		case <-ctx.Done():
			return
		}
	}
}

// known reads which clients and users there are.
func known() ([]storage.Client, []storage.Password, error) {
	var read struct {
		Clients []storage.Client
		Users   []struct {
			Email, Password string
			Groups          []string
		}
	}
	if *config != "" {
		text, err := os.ReadFile(*config)
		if err == nil {
			err = json.Unmarshal(text, &read)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read configuration: %w", err)
		}
	}
	var passwords []storage.Password
	for _, user := range read.Users {
		hash, err := bcrypt.GenerateFromPassword([]byte(user.Password), bcrypt.DefaultCost)
		if err != nil {
			return nil, nil, fmt.Errorf("hash password of %s: %w", user.Email, err)
		}
		passwords = append(passwords, storage.Password{Email: user.Email, Hash: hash, Username: user.Email, UserID: user.Email, Groups: user.Groups})
	}
	return read.Clients, passwords, nil
}

// identity reads the certificate to serve with, or makes one for the issuer and writes it to its file.
func identity(issuer string) (tls.Certificate, error) {
	if *pair != "" {
		read, err := tls.LoadX509KeyPair(filepath.Join(*pair, "tls.crt"), filepath.Join(*pair, "tls.key"))
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("read certificate: %w", err)
		}
		return read, nil
	}
	parsed, err := url.Parse(issuer)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read issuer: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "dex for tests"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(parsed.Hostname()); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{parsed.Hostname()}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate: %w", err)
	}
	if *certificate != "" {
		if err := os.WriteFile(*certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
			return tls.Certificate{}, fmt.Errorf("write certificate: %w", err)
		}
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
