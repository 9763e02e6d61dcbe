package etcdform

import (
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/gotypes"
	"plinth/schema"
)

// These are the types of v1beta1 that differ from those of v1, with their fields in the same order. The package of
// v1beta1 is not imported, as it would add 440 kB to the program; a test compares the two.

type definitionV1beta1 struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Spec              specV1beta1   `json:"spec" protobuf:"bytes,2,opt,name=spec"`
	Status            statusV1beta1 `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

type specV1beta1 struct {
	Group   string                           `json:"group" protobuf:"bytes,1,opt,name=group"`
	Version string                           `json:"version,omitempty" protobuf:"bytes,2,opt,name=version"`
	Names   v1.CustomResourceDefinitionNames `json:"names" protobuf:"bytes,3,opt,name=names"`
	Scope   v1.ResourceScope                 `json:"scope" protobuf:"bytes,4,opt,name=scope"`

	Validation   *v1.CustomResourceValidation   `json:"validation,omitempty" protobuf:"bytes,5,opt,name=validation"`
	Subresources *v1.CustomResourceSubresources `json:"subresources,omitempty" protobuf:"bytes,6,opt,name=subresources"`
	Versions     []versionV1beta1               `json:"versions,omitempty" protobuf:"bytes,7,rep,name=versions"`

	AdditionalPrinterColumns []columnV1beta1      `json:"additionalPrinterColumns,omitempty" protobuf:"bytes,8,rep,name=additionalPrinterColumns"`
	SelectableFields         []v1.SelectableField `json:"selectableFields,omitempty" protobuf:"bytes,11,rep,name=selectableFields"`

	Conversion            *conversionV1beta1 `json:"conversion,omitempty" protobuf:"bytes,9,opt,name=conversion"`
	PreserveUnknownFields *bool              `json:"preserveUnknownFields,omitempty" protobuf:"varint,10,opt,name=preserveUnknownFields"`
}

type versionV1beta1 struct {
	Name    string `json:"name" protobuf:"bytes,1,opt,name=name"`
	Served  bool   `json:"served" protobuf:"varint,2,opt,name=served"`
	Storage bool   `json:"storage" protobuf:"varint,3,opt,name=storage"`

	Deprecated         bool    `json:"deprecated,omitempty" protobuf:"varint,7,opt,name=deprecated"`
	DeprecationWarning *string `json:"deprecationWarning,omitempty" protobuf:"bytes,8,opt,name=deprecationWarning"`

	Schema       *v1.CustomResourceValidation   `json:"schema,omitempty" protobuf:"bytes,4,opt,name=schema"`
	Subresources *v1.CustomResourceSubresources `json:"subresources,omitempty" protobuf:"bytes,5,opt,name=subresources"`

	AdditionalPrinterColumns []columnV1beta1      `json:"additionalPrinterColumns,omitempty" protobuf:"bytes,6,rep,name=additionalPrinterColumns"`
	SelectableFields         []v1.SelectableField `json:"selectableFields,omitempty" protobuf:"bytes,9,rep,name=selectableFields"`
}

type columnV1beta1 struct {
	Name        string `json:"name" protobuf:"bytes,1,opt,name=name"`
	Type        string `json:"type" protobuf:"bytes,2,opt,name=type"`
	Format      string `json:"format,omitempty" protobuf:"bytes,3,opt,name=format"`
	Description string `json:"description,omitempty" protobuf:"bytes,4,opt,name=description"`
	Priority    int32  `json:"priority,omitempty" protobuf:"bytes,5,opt,name=priority"`
	JSONPath    string `json:"JSONPath" protobuf:"bytes,6,opt,name=JSONPath"`
}

type conversionV1beta1 struct {
	Strategy                 v1.ConversionStrategyType `json:"strategy" protobuf:"bytes,1,name=strategy"`
	WebhookClientConfig      *v1.WebhookClientConfig   `json:"webhookClientConfig,omitempty" protobuf:"bytes,2,name=webhookClientConfig"`
	ConversionReviewVersions []string                  `json:"conversionReviewVersions,omitempty" protobuf:"bytes,3,rep,name=conversionReviewVersions"`
}

type statusV1beta1 struct {
	Conditions         []v1.CustomResourceDefinitionCondition `json:"conditions" protobuf:"bytes,1,opt,name=conditions"`
	AcceptedNames      v1.CustomResourceDefinitionNames       `json:"acceptedNames" protobuf:"bytes,2,opt,name=acceptedNames"`
	StoredVersions     []string                               `json:"storedVersions" protobuf:"bytes,3,rep,name=storedVersions"`
	ObservedGeneration int64                                  `json:"observedGeneration,omitempty" protobuf:"varint,4,opt,name=observedGeneration"`
}

func definitionType() *schema.Type { return gotypes.Of[definitionV1beta1]() }
