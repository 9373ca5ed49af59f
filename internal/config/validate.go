package config

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxLogLevel is the highest verbosity that anything here logs at.
const maxLogLevel = 5

const second = Duration(time.Second)

// maxConcurrency is more than an API server answers at a time by default, and less than a
// typing error such as a port number.
const maxConcurrency = 1000

// jitterFactor is how much longer than retryPeriod an elector may wait between
// two attempts; client-go refuses a renewDeadline that does not leave room for it.
const jitterFactor = 1.2

// Validate reports everything that is wrong at once, so that a file is mended in
// one go.
func (c Manager) Validate() error {
	return errors.Join(
		c.LeaderElection.validate(),
		c.Metrics.validate(),
		bindAddress("health.bindAddress", c.Health.BindAddress),
		c.Logging.validate(),
		c.Adapter.validate(),
		c.Concurrency.validate(),
		c.Rollouts.validate(),
		c.Registry.validate(),
		c.Auth.validate(),
		oneOf("pods.runAsUser", c.Pods.RunAsUser, RunAsUserFixed, RunAsUserAssigned),
		c.Servers.validate(),
		clusterDomain(c.ClusterDomain),
		validateNamespaces(c.Namespaces),
		c.checkPorts(),
	)
}

func (l LeaderElection) validate() error {
	var problems []error
	if l.Namespace != "" {
		problems = append(problems, namespace("leaderElection.namespace", l.Namespace))
	}
	if l.RetryPeriod <= 0 {
		problems = append(problems, fmt.Errorf("leaderElection.retryPeriod must be positive, not %s", l.RetryPeriod))
	}
	if float64(l.RenewDeadline) <= jitterFactor*float64(l.RetryPeriod) {
		problems = append(problems, fmt.Errorf(
			"leaderElection.renewDeadline (%s) must be longer than %g times retryPeriod (%s)", l.RenewDeadline, jitterFactor, l.RetryPeriod))
	}
	if l.LeaseDuration <= l.RenewDeadline {
		problems = append(problems, fmt.Errorf(
			"leaderElection.leaseDuration (%s) must be longer than renewDeadline (%s): a leader must stop before the next one may start",
			l.LeaseDuration, l.RenewDeadline))
	}
	// The Lease counts in whole seconds.
	if l.LeaseDuration < second {
		problems = append(problems, fmt.Errorf("leaderElection.leaseDuration must be at least 1s, not %s", l.LeaseDuration))
	}
	return errors.Join(problems...)
}

func (m Metrics) validate() error {
	problems := []error{
		bindAddress("metrics.bindAddress", m.BindAddress),
		oneOf("metrics.protocol", m.Protocol, ProtocolHTTPS, ProtocolHTTP),
		oneOf("metrics.authentication", m.Authentication, AuthenticationKubernetes, AuthenticationNone),
	}
	if m.Protocol == ProtocolHTTP && m.Authentication == AuthenticationKubernetes {
		problems = append(problems, errors.New(
			"metrics.protocol HTTP must not be used with authentication Kubernetes: callers would send their tokens unencrypted"))
	}
	if m.Protocol == ProtocolHTTP && m.CertificateDirectory != "" {
		problems = append(problems, errors.New("metrics.certificateDirectory must not be set with protocol HTTP: it would not be used"))
	}
	return errors.Join(problems...)
}

func (l Logging) validate() error {
	problems := []error{oneOf("logging.format", l.Format, LogFormatJSON, LogFormatText)}
	if l.Level < 0 || l.Level > maxLogLevel {
		problems = append(problems, fmt.Errorf("logging.level must be from 0 to %d, not %d", maxLogLevel, l.Level))
	}
	return errors.Join(problems...)
}

func (a Adapter) validate() error {
	problem := oneOf("adapter.imagePullPolicy", a.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	if strings.ContainsFunc(a.Image, unicode.IsSpace) {
		problem = errors.Join(problem, fmt.Errorf("adapter.image must not contain white space: it is %q", a.Image))
	}
	return problem
}

func (c Concurrency) validate() error {
	return errors.Join(
		concurrency("concurrency.reconciliations", c.Reconciliations),
		concurrency("concurrency.probes", c.Probes),
	)
}

func concurrency(field string, number int) error {
	if number < 1 || number > maxConcurrency {
		return fmt.Errorf("%s must be from 1 to %d, not %d", field, maxConcurrency, number)
	}
	return nil
}

func (r Rollouts) validate() error {
	problem := oneOf("rollouts.onOperatorUpgrade", r.OnOperatorUpgrade, RolloutRestart, RolloutIgnore)
	if r.MaxConcurrent < 0 {
		problem = errors.Join(problem, fmt.Errorf("rollouts.maxConcurrent must not be negative: it is %d", r.MaxConcurrent))
	}
	return problem
}

// registryHost is a host as image references name it, or all names below one.
var registryHost = regexp.MustCompile(`^((\*\.)?[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)

func (r Registry) validate() error {
	problems := []error{oneOf("registry.mode", r.Mode, RegistryEnabled, RegistryDisabled)}
	for i, host := range r.AllowedHosts {
		if !registryHost.MatchString(host) {
			problems = append(problems, fmt.Errorf(
				"registry.allowedHosts[%d]: %q is no registry such as docker.io, registry.example:5000 or *.registry.example", i, host))
		}
	}
	return errors.Join(problems...)
}

func clusterDomain(domain string) error {
	if problems := validation.IsDNS1123Subdomain(domain); len(problems) > 0 {
		return fmt.Errorf("clusterDomain: %q is not a domain such as cluster.local: %s", domain, strings.Join(problems, "; "))
	}
	return nil
}

func validateNamespaces(names []string) error {
	var problems []error
	for i, name := range names {
		field := fmt.Sprintf("namespaces[%d]", i)
		problems = append(problems, namespace(field, name))
		if slices.Contains(names[:i], name) {
			problems = append(problems, fmt.Errorf("%s: %s is there twice", field, name))
		}
	}
	return errors.Join(problems...)
}

// checkPorts finds the clash that would otherwise be a bind error of whichever
// server starts second. Port 0 lets the system choose and clashes with nothing.
func (c Manager) checkPorts() error {
	metrics, health := port(c.Metrics.BindAddress), port(c.Health.BindAddress)
	if metrics == health && metrics != "" && metrics != "0" {
		return fmt.Errorf("metrics.bindAddress and health.bindAddress must not both use port %s", metrics)
	}
	return nil
}

// port is empty for an address that has none.
func port(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return port
}

func namespace(field, name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("%s: %q is not the name of a namespace: %s", field, name, strings.Join(problems, "; "))
	}
	return nil
}

func bindAddress(field, address string) error {
	if address == Off {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%s must be host:port, :port, or %q for off, not %q", field, Off, address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%s: %q is not a port number from 0 to 65535", field, port)
	}
	return nil
}

func oneOf[T ~string](field string, got T, allowed ...T) error {
	if slices.Contains(allowed, got) {
		return nil
	}
	words := make([]string, len(allowed))
	for i, word := range allowed {
		words[i] = string(word)
	}
	return fmt.Errorf("%s must be %s, not %q", field, strings.Join(words, " or "), got)
}
