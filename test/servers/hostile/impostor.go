package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"time"
)

const (
	// capturedMark begins the lines that say, in JSON, what one connection to an impostor was.
	capturedMark = "captured: "
	// listeningMark is the line that says that the impostor listens.
	listeningMark = "hostile: listening"
	// mostCaptured bounds what is kept of a connection, as it came and as TLS reads it.
	mostCaptured = 3 << 10
	// captureFor is how long a connection is listened to.
	captureFor = 10 * time.Second
)

// capture is what an impostor got on one connection.
type capture struct {
	Raw   []byte `json:"raw"`   // as it came
	Plain []byte `json:"plain"` // what TLS made of it behind the handshake
	End   string `json:"end"`   // how the handshake, or the connection, ended
}

// pretendToBe listens where a pod does that has gone, under the name of that pod, and takes all that it is told. What it
// lacks is the key of the pod's server. It never returns.
func pretendToBe(address, uid string) {
	config, err := pretence(uid)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, listeningMark)
	for {
		conn, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "hostile:", err)
			os.Exit(1)
		}
		go func() {
			line, err := json.Marshal(listen(conn, config))
			if err == nil {
				fmt.Fprintln(os.Stderr, capturedMark+string(line))
			}
		}()
	}
}

// pretence is a certificate like that of a pod, which the impostor has signed itself.
func pretence(uid string) (*tls.Config, error) {
	name, err := url.Parse("slipway://pod/" + uid)
	if err != nil {
		return nil, err
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), URIs: []*url.URL{name}, KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, err
	}
	shown := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		// Whatever protocol the client proposes is fine.
		return &tls.Config{Certificates: shown, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert, NextProtos: hello.SupportedProtos}, nil
	}}, nil
}

// listen takes all that comes on a connection, and answers nothing but what TLS needs.
func listen(conn net.Conn, config *tls.Config) capture {
	recorded := &recording{Conn: conn}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(captureFor)) // it fails only where reading fails, too
	var plain bytes.Buffer
	_, err := io.Copy(&plain, io.LimitReader(tls.Server(recorded, config), mostCaptured))
	end := "closed"
	if err != nil {
		end = err.Error()
	}
	return capture{Raw: recorded.came, Plain: plain.Bytes(), End: end}
}

// recording is a connection that keeps the first bytes that come.
type recording struct {
	net.Conn
	came []byte
}

func (r *recording) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.came = append(r.came, p[:min(n, mostCaptured-len(r.came))]...)
	return n, err
}
