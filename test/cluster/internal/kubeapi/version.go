package kubeapi

import (
	"encoding/json"
	"errors"
)

func parseVersion(body []byte) (string, error) {
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &version); err != nil {
		return "", err
	}
	if version.GitVersion == "" {
		return "", errors.New("the answer is not that of a Kubernetes API server")
	}
	return version.GitVersion, nil
}
