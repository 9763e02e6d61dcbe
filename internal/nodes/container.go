package nodes

import (
	"fmt"
	"slices"

	"plinth/internal/apierr"
	"plinth/object"
)

// containerOf returns the name of the container that a request is about: the one that it names, or the only one.
func containerOf(pod object.Value, asked string) (string, error) {
	name := pod.At("metadata", "name").Str()
	containers := pod.At("spec", "containers").Items()
	if asked == "" && len(containers) == 1 {
		return containers[0].At("name").Str(), nil
	}
	var names []string
	for _, list := range []string{"initContainers", "containers", "ephemeralContainers"} {
		for _, c := range pod.At("spec", list).Items() {
			names = append(names, c.At("name").Str())
		}
	}
	switch {
	case asked == "" && len(containers) == 0:
		return "", apierr.NewBadRequest("a container name must be specified for pod " + name)
	case asked == "":
		return "", apierr.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", name,
			names))
	case !slices.Contains(names, asked):
		return "", apierr.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", asked, name))
	}
	return asked, nil
}
