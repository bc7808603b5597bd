//! One request: the caller, the limits, the faults, the action and the reply.

use super::fault_effects::FaultEffects;
use super::journal::{Entry, printable};
use super::reply::{Service, garble, render};
use super::{PlannedRequest, Reply, Request, Sim};
use crate::actions;
use crate::actions::Call;
use crate::faults::{Body, Fault};
use crate::iam::{Caller, sts};
use crate::state::Ids;
use crate::time::Millis;
use crate::wire::{ApiError, ApiResult, Credential, Params, check_time, query, refuse};

/// What the simulator learns while it answers a request.
#[derive(Debug, Default)]
struct Notes {
    /// The ids of created or changed resources.
    effects: Vec<String>,
    applied: Vec<(String, Fault)>,
    fault_effects: FaultEffects,
}

struct AuthenticatedRequest<'a> {
    now: Millis,
    action: &'a str,
    params: &'a Params,
    service: Service,
    caller: Caller,
    delay_ms: u64,
    origin: &'static str,
}

impl Sim {
    /// Answers a request that arrives at `now`. When this function returns, any change that the
    /// request makes is on disk.
    pub fn handle(&mut self, now: Millis, request: &Request) -> Reply {
        self.settle(now);
        self.answer(now, request, "sdk")
    }

    pub(super) fn answer(&mut self, now: Millis, request: &Request, origin: &'static str) -> Reply {
        let params = Params::parse(&request.form);
        let action = params.peek("Action").unwrap_or("").to_owned();
        let credential = request.authorization.as_deref().and_then(Credential::parse);
        let service = service(&params, credential.as_ref(), &action);
        let request_id = Ids::request_id(&mut self.request_ids);
        let delay_ms = self.latency.api(&action);
        let mut notes = Notes::default();

        let caller =
            self.authenticate(now, request, &params, credential.as_ref(), &action, service);
        let result = caller.and_then(|caller| {
            let authenticated = AuthenticatedRequest {
                now,
                action: &action,
                params: &params,
                service,
                caller,
                delay_ms,
                origin,
            };
            self.perform(&authenticated, &mut notes)
        });
        self.commit(now);
        self.schedule_consequences(now, request, origin, &params, &notes);
        let mut body_form = Body::Xml;
        let result = match notes.fault_effects.instead.take() {
            Some((error, form)) => {
                body_form = form;
                Err(error)
            }
            None => result,
        };
        let mut reply = render(&action, service, &request_id, &result, body_form);
        reply.delay_ms = delay_ms;
        reply.delivery = notes.fault_effects.delivery;
        reply.retry_after_ms = notes.fault_effects.retry_after_ms;
        garble(&mut reply, notes.fault_effects.garble, &action);

        let code = result.as_ref().err().map(|e| e.code.clone());
        let counted = if action.is_empty() { "(none)" } else { &action };
        self.statistics.add(counted, code.as_deref(), notes.fault_effects.throttled);
        self.journal.add(Entry {
            seq: 0,
            at: now.iso(),
            account: self.realm.account.clone(),
            region: self.realm.region.clone(),
            action,
            access_key: credential.map(|c| c.access_key),
            parameters: params
                .pairs()
                .filter(|(k, _)| !matches!(*k, "Action" | "Version"))
                .map(|(k, v)| (k.to_owned(), printable(k, v)))
                .collect(),
            request_id,
            status: reply.status,
            code,
            effects: notes.effects,
            delay_ms,
            faults: notes.applied.into_iter().map(|(id, _)| id).collect(),
            origin,
        });
        reply
    }

    fn perform(&mut self, u: &AuthenticatedRequest<'_>, notes: &mut Notes) -> ApiResult<String> {
        if u.service == Service::Ec2 {
            let unfiltered = u.action.starts_with("Describe") && query::unfiltered(u.params);
            let buckets = &mut self.realm.buckets;
            if !buckets.take(&self.limits, u.action, unfiltered, u.now) {
                notes.fault_effects.throttled = true;
                return Err(ApiError::throttled());
            }
        }
        // Rules apply to the client's requests and to their duplicates, not to the calls of other
        // users.
        if u.origin != "foreign" {
            notes.applied = self.faults.apply(u.action, u.params, u.now);
        }
        let faults: Vec<Fault> = notes.applied.iter().map(|(_, f)| f.clone()).collect();
        notes.fault_effects = FaultEffects::of(&faults);
        if u.origin == "sdk" {
            self.send_earlier_foreign_calls(u.now, u.params, &faults);
        }
        if notes.fault_effects.suppressed {
            return Err(ApiError::new(500, "InternalError", "An internal error has occurred"));
        }
        if u.service == Service::Sts {
            let (iam, account) = (&mut self.iam, &self.realm.account);
            return sts::answer(iam, u.now, u.action, u.params, account, &u.caller);
        }
        let realm = &mut self.realm;
        realm.check_zones(u.action, u.params)?;
        let view = if u.action.starts_with("Describe") {
            let stale_ms = notes.fault_effects.stale_ms;
            self.consistency.view(u.action, u.params, stale_ms)
        } else {
            None
        };
        let current = view.map(|v| realm.show_view(u.now, &v));
        let mut call = Call {
            now: u.now,
            begin: u.now.plus(u.delay_ms),
            action: u.action,
            params: u.params,
            realm,
            ids: &mut self.ids,
            latency: &mut self.latency,
            devices: &mut *self.devices,
            faults: &faults,
            caller: &u.caller,
            iam: &self.iam,
            quotas: &self.quotas,
            effects: Vec::new(),
        };
        let result = actions::dispatch(&mut call);
        notes.effects = call.effects;
        if let Some(current) = current {
            self.realm.restore_current(current);
        }
        result
    }

    /// Schedules what the request's faults cause afterwards: the duplicate of the request, and the
    /// calls of other users.
    fn schedule_consequences(
        &mut self,
        now: Millis,
        request: &Request,
        origin: &'static str,
        params: &Params,
        notes: &Notes,
    ) {
        if let Some(after) = notes.fault_effects.duplicate_ms
            && origin != "duplicate"
        {
            self.schedule(now.plus(after), request.clone(), "duplicate");
        }
        if origin != "sdk" {
            return;
        }
        for (_, fault) in &notes.applied {
            if let Fault::Foreign { action, parameters, after_ms: Some(after) } = fault {
                let made = notes.effects.first().map(String::as_str);
                let call = self.foreign_request(action, parameters, Some(params), made);
                self.schedule(now.plus(*after), call, "foreign");
            }
        }
    }

    fn schedule(&mut self, at: Millis, request: Request, origin: &'static str) {
        self.planned += 1;
        self.scheduled.insert((at, self.planned), PlannedRequest { request, origin });
    }

    /// Makes the calls of other users that take effect just before a request.
    fn send_earlier_foreign_calls(&mut self, now: Millis, params: &Params, faults: &[Fault]) {
        for fault in faults {
            if let Fault::Foreign { action, parameters, after_ms: None } = fault {
                let call = self.foreign_request(action, parameters, Some(params), None);
                self.answer(now, &call, "foreign");
                // The immediate effects of the call are complete before the request is processed.
                self.settle(now);
            }
        }
    }
}

impl Sim {
    /// Checks credentials, version and action, and returns the caller. All codes and wordings but
    /// those of InvalidAction are unverified.
    pub(super) fn authenticate(
        &self,
        now: Millis,
        request: &Request,
        params: &Params,
        credential: Option<&Credential>,
        action: &str,
        service: Service,
    ) -> ApiResult<Caller> {
        if action.is_empty() {
            refuse!("MissingAction", "The request must contain the parameter Action");
        }
        let version = match service {
            Service::Ec2 => "2016-11-15",
            Service::Sts => "2011-06-15",
        };
        let given = params.peek("Version").ok_or_else(|| ApiError::missing("Version"))?;
        if given != version {
            refuse!("NoSuchVersion", "The requested version ({given}) of service is not valid.");
        }
        if service == Service::Ec2 && !actions::known(action) {
            return Err(actions::invalid_action(action));
        }
        if service == Service::Sts && action == sts::WITH_TOKEN {
            return Ok(Caller::default());
        }
        let c = credential.ok_or_else(ApiError::bad_credentials)?;
        if let (Some(_), Some(date)) = (&request.authorization, &request.date) {
            check_time(date, now)?;
        }
        let (account, region) = (&self.realm.account, &self.realm.region);
        if service == Service::Ec2 && c.region != *region {
            return Err(ApiError::new(
                401,
                "AuthFailure",
                format!(
                    "Credential should be scoped to a valid region, not '{}': account {account} has no such region in the scenario",
                    c.region
                ),
            ));
        }
        self.iam.caller(c, now)
    }
}

pub(super) fn service(params: &Params, credential: Option<&Credential>, action: &str) -> Service {
    let by_scope = credential.is_some_and(|c| c.service == "sts");
    let by_version = params.peek("Version") == Some("2011-06-15");
    if by_scope || by_version || action == sts::ACTION { Service::Sts } else { Service::Ec2 }
}
