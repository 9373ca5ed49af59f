//go:build e2e

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/imagebuild"
	"github.com/slipway-mcp/slipway/test/dex"
)

// identityProvider is an issuer of tokens that runs as a pod, behind a Service of the same name. Its data is in
// memory, so that another pod has other keys.
type identityProvider struct {
	namespace, name string
	issuer          string // its URL
	ca              []byte // as PEM
}

const (
	providerPort  = 8443
	providerFiles = "/etc/provider"
	caKey         = "ca.crt"
	discovery     = "/.well-known/openid-configuration" // where a provider says what it has
)

// providers is an image with dex as /idp, and our own authorization server as /authserver.
func (s *imageSet) providers(ctx context.Context) string {
	GinkgoHelper()
	return s.image(ctx, "providers", func() imagebuild.Spec {
		idp, err := dex.Build(ctx)
		Expect(err).NotTo(HaveOccurred())
		own := filepath.Join(s.programs, "authserver")
		buildStatic(ctx, own, "./test/e2e/authserver")
		return imagebuild.Spec{Entrypoint: []string{"/idp"}, Files: []imagebuild.File{
			{Path: "/idp", Source: idp, Mode: 0o755}, {Path: "/authserver", Source: own, Mode: 0o755},
		}}
	})
}

// runProvider runs a program of the providers' image. It does not wait until it serves.
func runProvider(ctx context.Context, namespace, name, program string, config any) *identityProvider {
	GinkgoHelper()
	host := name + "." + namespace + ".svc"
	p := &identityProvider{namespace: namespace, name: name, issuer: "https://" + host}
	files := map[string][]byte{}
	p.ca, files[corev1.TLSCertKey], files[corev1.TLSPrivateKeyKey] = certify(host)
	var err error
	files["config.json"], err = json.Marshal(config)
	Expect(err).NotTo(HaveOccurred())
	labels := map[string]string{"app": name}
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
	for _, object := range []client.Object{
		&corev1.Secret{ObjectMeta: meta, Data: files},
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{caKey: string(p.ca)}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Selector: labels, Ports: []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromInt32(providerPort)}},
		}},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: restricted(corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(1)),
					Containers: []corev1.Container{{
						Name: name, Image: images.providers(ctx),
						Command: []string{
							program, "-listen", ":" + strconv.Itoa(providerPort), "-issuer", p.issuer,
							"-pair", providerFiles, "-config", providerFiles + "/config.json",
						},
						ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(providerPort)}}},
						VolumeMounts:   []corev1.VolumeMount{{Name: "files", MountPath: providerFiles, ReadOnly: true}},
					}},
					Volumes: []corev1.Volume{{Name: "files", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}},
				}),
			},
		}},
	} {
		Expect(cluster.Create(ctx, object)).To(Succeed())
	}
	return p
}

// awaitServing waits until the provider's Service leads to it.
func (p *identityProvider) awaitServing(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		_, err := p.ask(ctx, http.MethodGet, discovery, nil)
		return err
	}).WithContext(ctx).WithTimeout(2 * patience).Should(Succeed())
}

// stop takes the provider away, and with it its keys. When it returns, no pod is left.
func (p *identityProvider) stop(ctx context.Context) {
	GinkgoHelper()
	kubectl(ctx, p.namespace, "scale", "deployment/"+p.name, "--replicas=0")
	Eventually(func() ([]corev1.Pod, error) {
		var list corev1.PodList
		err := cluster.List(ctx, &list, client.InNamespace(p.namespace), client.MatchingLabels{"app": p.name})
		return list.Items, err
	}).WithContext(ctx).Should(BeEmpty())
}

// awaitMissed waits until the running manager has failed to fetch the provider's keys.
func (p *identityProvider) awaitMissed(ctx context.Context) {
	GinkgoHelper()
	pod := awaitManagers(ctx, 1)[0].Name
	Eventually(func() (string, error) {
		log, err := cluster.CoreV1().Pods(operatorNamespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
		return string(log), err
	}).WithContext(ctx).Should(MatchRegexp("Cannot fetch the keys of an issuer.*" + regexp.QuoteMeta(p.issuer)))
}

// start brings a provider that was stopped back, with other keys.
func (p *identityProvider) start(ctx context.Context) {
	GinkgoHelper()
	kubectl(ctx, p.namespace, "scale", "deployment/"+p.name, "--replicas=1")
	p.awaitServing(ctx)
}

// as is the provider as an issuer of a server.
func (p *identityProvider) as(name string, claims mcpv1alpha1.IssuerClaims) mcpv1alpha1.Issuer {
	return mcpv1alpha1.Issuer{Name: name, URL: p.issuer, CABundle: &mcpv1alpha1.ConfigMapKey{Name: p.name, Key: caKey}, Claims: claims}
}

// token is a new access token.
func (p *identityProvider) token(ctx context.Context, form url.Values) string {
	GinkgoHelper()
	answer, err := p.ask(ctx, http.MethodPost, "/token", form)
	Expect(err).NotTo(HaveOccurred())
	token, _ := answer["access_token"].(string)
	Expect(token).NotTo(BeEmpty())
	return token
}

// ask sends a request over a connection of its own, and returns the answer, which may be empty.
func (p *identityProvider) ask(ctx context.Context, method, path string, form url.Values) (answer map[string]any, err error) {
	request, err := http.NewRequestWithContext(ctx, method, p.issuer+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.ca)
	asking := &http.Client{Transport: &http.Transport{
		DialContext: gate.dial, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}, Timeout: patience}
	response, err := asking.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.ContentLength != 0 {
		err = json.NewDecoder(response.Body).Decode(&answer)
	}
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s: %v, %w", method, path, response.Status, answer, err)
	}
	return answer, nil
}

// certify makes a certificate authority, and a certificate for a host that it has signed. All is in PEM.
func certify(host string) (ca, certificate, key []byte) {
	GinkgoHelper()
	authority, name := newKey(), newKey()
	valid := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	root, leaf := valid, valid
	root.Subject = pkix.Name{CommonName: "e2e"}
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	leaf.SerialNumber, leaf.DNSNames = big.NewInt(2), []string{host}
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	text, err := x509.MarshalPKCS8PrivateKey(name)
	Expect(err).NotTo(HaveOccurred())
	return sign(&root, &root, authority, authority), sign(&leaf, &root, name, authority), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

func newKey() *ecdsa.PrivateKey {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	return key
}

func sign(certificate, authority *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
	GinkgoHelper()
	der, err := x509.CreateCertificate(rand.Reader, certificate, authority, key.Public(), by)
	Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
