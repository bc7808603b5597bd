//! The caller and the Region, from the credential scope of the signature. The signature itself is
//! not verified.

/// The credential scope of an AWS signature, version 4: `KEY/20260925/us-east-1/ec2/aws4_request`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credential {
    /// The access key id. A request never carries the secret key.
    pub access_key: String,
    /// The Region in the scope.
    pub region: String,
    /// The service in the scope: `ec2` or `sts`.
    pub service: String,
}

impl Credential {
    /// Parses the `Authorization` header, or `X-Amz-Credential` of a presigned query.
    pub fn parse(authorization: Option<&str>, query: Option<&str>) -> Option<Self> {
        let scope = match (authorization, query) {
            (Some(header), _) => header
                .split_once("Credential=")?
                .1
                .split([',', ' '])
                .next()?,
            (None, Some(q)) => q,
            (None, None) => return None,
        };
        let mut parts = scope.split('/');
        let access_key = parts.next()?.to_owned();
        let _date = parts.next()?;
        let region = parts.next()?.to_owned();
        let service = parts.next()?.to_owned();
        (!access_key.is_empty()).then_some(Self {
            access_key,
            region,
            service,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_parses_from_header_or_query_else_none() {
        let header = "AWS4-HMAC-SHA256 Credential=AKID/20260925/eu-west-1/ec2/aws4_request, SignedHeaders=host, Signature=00";
        let c = Credential::parse(Some(header), None).expect("header");
        assert_eq!(
            (c.access_key.as_str(), c.region.as_str(), c.service.as_str()),
            ("AKID", "eu-west-1", "ec2")
        );
        assert!(
            Credential::parse(None, Some("AKID/20260925/eu-west-1/sts/aws4_request")).is_some()
        );
        assert_eq!(Credential::parse(Some("Bearer x"), None), None);
        assert_eq!(Credential::parse(Some("Credential=//"), None), None);
        assert_eq!(Credential::parse(None, None), None);
    }
}
