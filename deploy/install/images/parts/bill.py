"""The bill of materials of an image, by CycloneDX's own library."""

import uuid
from datetime import datetime

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.component_evidence import ComponentEvidence, Occurrence
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL


def is_expression(licence):
    """Whether the text is an SPDX identifier or expression.

    >>> [is_expression(one) for one in ("MIT OR Apache-2.0", "MIT", "GPL", "public domain")]
    [True, True, False, False]
    """
    return not getattr(_licence(licence), "name", None)


def bill(name, version, digest, created, parts):
    """The bill as text. The image depends on the parts that nothing else needs."""
    image = Component(name=name, version=version, type=ComponentType.CONTAINER,
                      bom_ref=f"{name}@{digest}", hashes=[_sha256(digest.partition(":")[2])])
    components = {key: _component(part) for key, part in parts.items()}
    needed = set().union(*(part.needs for part in parts.values()))
    tool = Component(name="ebs-csi-images", type=ComponentType.APPLICATION)
    # The same image gives the same bill.
    metadata = BomMetaData(component=image, tools=ToolRepository(components=[tool]),
                           timestamp=datetime.fromisoformat(created))
    bom = Bom(components=components.values(), metadata=metadata,
              serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{name}@{digest}"))
    bom.register_dependency(image, [components[key] for key in parts if key not in needed])
    for key, part in parts.items():
        bom.register_dependency(components[key], [components[one] for one in part.needs])
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _component(part):
    purl = None
    if part.published:
        kind, namespace, qualifiers = part.published
        purl = PackageURL(kind, namespace, part.name, part.version, qualifiers)
    # With references, by which the library sorts.
    held = [Occurrence(bom_ref=f"{part.name}:{path}", location=path) for path in part.files]
    return Component(
        name=part.name,
        version=part.version,
        type=ComponentType.APPLICATION if part.is_program else ComponentType.LIBRARY,
        bom_ref=str(purl or f"{part.name}@{part.version}"),
        purl=purl,
        hashes=[_sha256(part.sha256)] if part.sha256 else [],
        licenses=_licences(part.licences),
        evidence=ComponentEvidence(occurrences=held) if held else None)


def _licences(licences):
    """An expression has to stand alone; several licences are listed by identifier or name."""
    made = [_licence(licence) for licence in licences]
    if len(made) == 1:
        return made
    return [DisjunctiveLicense(name=one.value) if isinstance(one, LicenseExpression) else one
            for one in made]


def _licence(text):
    made = LicenseFactory().make_from_string(text)
    # The library takes other short names for expressions, too: GPL.
    if isinstance(made, LicenseExpression) and " " not in text:
        return DisjunctiveLicense(name=text)
    return made


def _sha256(content):
    return HashType(alg=HashAlgorithm.SHA_256, content=content)
