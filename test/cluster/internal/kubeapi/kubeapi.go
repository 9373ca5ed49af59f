// Package kubeapi asks a cluster how it is.
package kubeapi

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Client reads from one cluster.
type Client struct {
	clientset kubernetes.Interface
	// Host is the API server's address.
	Host string
}

// Connect reads a kubeconfig; an empty path means the one that kubectl would use.
// It does not talk to the cluster yet.
func Connect(kubeconfig string) (*Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.Timeout = 5 * time.Second
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client for %s: %w", config.Host, err)
	}
	return &Client{clientset: clientset, Host: config.Host}, nil
}

// Version is the API server's version.
func (c *Client) Version(ctx context.Context) (string, error) {
	body, err := c.clientset.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", c.Host, err)
	}
	version, err := parseVersion(body)
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", c.Host, err)
	}
	return version, nil
}

// Ready returns nil when the API server says that it is ready.
func (c *Client) Ready(ctx context.Context) error {
	if _, err := c.clientset.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Raw(); err != nil {
		return fmt.Errorf("ask %s whether it is ready: %w", c.Host, err)
	}
	return nil
}

// NodeReady returns nil when the node is ready, and has said so since the given time.
func (c *Client) NodeReady(ctx context.Context, name string, since time.Time) error {
	node, err := c.clientset.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get Node %s: %w", name, err)
	}
	return nodeReady(node, since)
}

// NodesReady returns the number of nodes and how many of them are ready.
func (c *Client) NodesReady(ctx context.Context) (ready, total int, err error) {
	nodes, err := c.clientset.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, fmt.Errorf("list Nodes: %w", err)
	}
	for i := range nodes.Items {
		if nodeReady(&nodes.Items[i], time.Time{}) == nil {
			ready++
		}
	}
	return ready, len(nodes.Items), nil
}

func nodeReady(node *corev1.Node, since time.Time) error {
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		// The API keeps whole seconds only.
		if condition.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) {
			return fmt.Errorf("node %s has not reported since its kubelet was started", node.Name)
		}
		if condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("node %s is not ready: %s", node.Name, condition.Message)
		}
		return nil
	}
	return fmt.Errorf("node %s has not reported yet", node.Name)
}

// DeploymentAvailable returns nil when the Deployment's current generation is available.
func (c *Client) DeploymentAvailable(ctx context.Context, namespace, name string) error {
	deployment, err := c.clientset.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get Deployment %s/%s: %w", namespace, name, err)
	}
	return deploymentAvailable(deployment)
}

func deploymentAvailable(deployment *appsv1.Deployment) error {
	status := deployment.Status
	if status.ObservedGeneration < deployment.Generation {
		return fmt.Errorf("deployment %s: the last change is not observed yet", deployment.Name)
	}
	if status.UpdatedReplicas < 1 || status.AvailableReplicas < status.UpdatedReplicas {
		return fmt.Errorf("deployment %s: %d of %d replicas are available",
			deployment.Name, status.AvailableReplicas, status.UpdatedReplicas)
	}
	return nil
}
